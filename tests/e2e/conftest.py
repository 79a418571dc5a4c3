"""One real stack for all end-to-end tests: `saltwall up` with the demo model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flood.targets import STACK_POOL, Target, stock
from recorder import Recorded, listening
from running_stack import LEASE_S, Stack, running_stack

LAST = ("test_faults.py", "test_secrets.py")
"""What breaks the stack runs after the rest of these; what searches its traces runs last."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks these tests, and runs them before all others, as the longest work for one worker."""
    here = Path(__file__).parent
    others = len(LAST) + 1

    def order(item: pytest.Item) -> int:
        if here not in item.path.parents:
            return others
        item.add_marker(pytest.mark.e2e)
        return LAST.index(item.path.name) + 1 if item.path.name in LAST else 0

    items.sort(key=order)


@pytest.fixture(scope="session")
def spans() -> Iterator[tuple[str, list[Recorded]]]:
    """Where the gateway sends its spans."""
    with listening(lambda _: (200, b"{}")) as collector:
        yield collector


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, spans: Any) -> Iterator[Stack]:
    """The running product, started once per test run; with so few blocks that they can run out."""
    home = tmp_path_factory.mktemp("stack") / "home"
    with running_stack(
        home,
        *STACK_POOL,
        SALTWALL_LEASE_SECONDS=str(LEASE_S),
        SALTWALL_LOG_LEVEL="debug",
        SALTWALL_OTLP_ENDPOINT=spans[0],
    ) as stack:
        yield stack


@pytest.fixture(scope="session")
def plain(stack: Stack) -> Iterator[Target]:
    """Stock vLLM with the same model and the same number of blocks, to be attacked the same way."""
    with stock(stack.home) as target:
        yield target
