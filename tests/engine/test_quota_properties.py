"""vLLM's own scheduler and pool under quotas: what must hold whatever tenants and operators do."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from engine_life import EngineLife
from properties import effort, run_machine, seeds

WITNESSED = (
    "finished",
    "own idle blocks recycled",
    "others' idle blocks taken",
    "preemptions for others",
)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("number", seeds(2, 40))
def test_quotas_hold_whatever_happens(
    make_config: Callable[..., Any], asynchronous: bool, number: int
) -> None:
    """Ceilings, reserves, sums and charges hold at every step, and every request ends."""
    machine: Any = EngineLife
    machine.make_config = staticmethod(cache(make_config))
    machine.asynchronous = asynchronous
    machine.seen, machine.longest_wait = Counter(), []
    run_machine(machine, number, effort(30, 300), 40)
    for what in WITNESSED:
        assert machine.seen[what], f"no {what} among {machine.seen}"
