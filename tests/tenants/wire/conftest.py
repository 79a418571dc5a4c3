"""The real vLLM, for what only it can say."""

from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def vllm_cache_salt() -> Callable[[object], None]:
    """vLLM's own check of a request's `cache_salt`."""
    from vllm.entrypoints.generate.base.protocol import validate_cache_salt

    check: Callable[[object], None] = validate_cache_salt
    return check
