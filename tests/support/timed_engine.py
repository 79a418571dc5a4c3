"""A `FakeEngine` with a clock of its own: a step takes a fixed time and some for each token."""

from collections.abc import Callable
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from fake_engine import FakeEngine

TENANTS = [UUID(int=number + 1) for number in range(20)]
STEP_TOKENS = 400.0
"""Prefill tokens that fit the bound on a step, once its engine has learned."""
_numbers = count(1)


class TimedEngine(FakeEngine):
    """Its steps take 20 ms and 0.2 ms a token, of 100 ms that a step may take."""

    now = 0.0
    fixed_ms, token_ms = 20.0, 0.2

    def _clock(self) -> float:
        return self.now

    def _update(self, scheduled: Any, sampled: list[str]) -> None:
        took_ms = self.fixed_ms + self.token_ms * scheduled.total_num_scheduled_tokens
        self.now += took_ms / 1000
        super()._update(scheduled, sampled)


MakeEngine = Callable[..., TimedEngine]


def prompt(tokens: int) -> list[int]:
    """One that nobody has sent."""
    number = next(_numbers)
    return [(number * 13 + i * i + i * number) % 900 for i in range(tokens)]


def steps(engine: TimedEngine, done: Callable[[], bool], most: int = 600) -> int:
    """Steps until something holds, at most so many."""
    for taken in range(most):
        if done():
            return taken
        engine.step()
    engine.scheduler.check_integrity()
    return most


def count_looks(engine: TimedEngine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tokens whose cached prefix is looked up from now on, in the last entry; add one a step."""
    looked_up: list[int] = []
    find = engine.scheduler.kv_cache_manager.get_computed_blocks

    def counted(request: Any, *args: Any, **kwargs: Any) -> Any:
        looked_up[-1] += request.num_tokens
        return find(request, *args, **kwargs)

    monkeypatch.setattr(engine.scheduler.kv_cache_manager, "get_computed_blocks", counted)
    return looked_up
