"""What the benchmarks share: stock vLLM and Saltwall's in one process, and requests for either."""

import atexit
import itertools
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from bare_config import engine_config, write_keys, write_model
from bare_core import BLOCK, Core
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256_cbor
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from saltwall_engine.block_hash import get_request_block_hasher
from saltwall_engine.salt_label import Grant, Owner, SaltLabel

STOCK_HASHER = kv_cache_utils.get_request_block_hasher
"""vLLM's own, taken before Saltwall's replaces it."""

VOCABULARY = 128_256

_numbers = itertools.count()


def tenant(number: int) -> Grant:
    """What a tenant's verified ticket grants."""
    return Grant(Owner(UUID(int=number + 1), 1), number.to_bytes(32, "big"))


def prompt(tokens: int) -> list[int]:
    """Random tokens of a present-day vocabulary."""
    return [random.randrange(VOCABULARY) for _ in range(tokens)]


def request(
    tokens: list[int], whose: Grant | None = None, *, output: int = 1, hasher: Any = None
) -> Any:
    """A request of a tenant, or of nobody, as stock vLLM has them."""
    return Request(
        request_id=f"r{next(_numbers)}",
        prompt_token_ids=tokens,
        sampling_params=SamplingParams(max_tokens=output, ignore_eos=True),
        pooling_params=None,
        cache_salt=None if whose is None else SaltLabel(whose),
        block_hasher=hasher,
    )


@cache
def _model() -> Path:
    """A model's config on disk, and Saltwall's hooks live in this process."""
    from saltwall_engine import plugin

    directory = tempfile.TemporaryDirectory(prefix="saltwall-bench-")
    atexit.register(directory.cleanup)
    write_model(Path(directory.name))
    write_keys(Path(directory.name))
    plugin.register()
    return Path(directory.name)


def stock_core(**options: Any) -> Core:
    """A core with vLLM's own scheduler, and the hasher for its requests."""
    cls = AsyncScheduler if options.get("asynchronous") else Scheduler
    core = Core(engine_config(_model(), **options), cls)
    core.request_block_hasher = STOCK_HASHER(BLOCK, sha256_cbor)
    return core


def saltwall_core(tenants: list[Grant], **options: Any) -> Core:
    """A core with Saltwall's scheduler, whose policy knows the tenants."""
    core = Core(engine_config(_model(), **options))
    core.scheduler.admission.replace({t.owner.tenant: frozenset({1}) for t in tenants})
    core.request_block_hasher = get_request_block_hasher(BLOCK, sha256_cbor)
    if isinstance(core.scheduler, AsyncScheduler) is not options.get("asynchronous", False):
        raise AssertionError("Saltwall's scheduler and stock's are of different kinds")
    return core
