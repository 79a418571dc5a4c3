"""`schedule()`: vLLM's own scheduler against Saltwall's, with requests that decode.

Each running request is another tenant's, which has a ceiling and a reserve of half of what it comes
to hold, and they take their next blocks at different steps. The model is left out; what it would
have answered is fed back, and measured apart ("its output").
"""

from collections.abc import Iterator
from typing import Any

from bare_core import BLOCK, Core
from paired import Outcome, Side, Stopwatch, measure
from world import prompt, request, saltwall_core, stock_core, tenant

from saltwall_engine.ledger import Quota

GOAL = 1.1
RUNNING, WAITING, ROUNDS = (64, 256, 1024), (256, 10_000), 20
QUICK_RUNNING, QUICK_WAITING, QUICK_ROUNDS = (16,), (16, 200), 3
STEPS = BLOCK
"""In a round: over so many steps each request takes one block."""


def _decoding(saltwall: bool, running: int, waiting: int, steps: int, asynchronous: bool) -> Core:
    """A core in which so many requests decode, for `steps` steps at least."""
    tenants = [tenant(i) for i in range(running + waiting)]
    options = {
        "asynchronous": asynchronous,
        "blocks": running * (steps // BLOCK + 8),
        "running": running,
        "step_tokens": max(2048, running),
        "model_len": 2048,
    }
    core = saltwall_core(tenants, **options) if saltwall else stock_core(**options)
    if saltwall:
        quota = Quota(reserve=options["blocks"] // running // 2, ceiling=options["blocks"] // 2)
        for whose in tenants[:running]:
            core.scheduler.set_quota(whose.owner.tenant, quota)
    hasher = core.request_block_hasher

    def add(number: int) -> None:
        tokens = prompt(BLOCK + number % BLOCK)
        whose = tenants[number] if saltwall else None
        core.scheduler.add_request(request(tokens, whose, output=1500, hasher=hasher))

    for number in range(running):
        add(number)
    while any(
        r.num_computed_tokens < r.num_prompt_tokens for r in core.scheduler.requests.values()
    ):
        core.step()
    for number in range(running, running + waiting):
        add(number)
    return core


def _side(core: Core, running: int) -> Side:
    """Takes a few steps in which all that runs decodes."""

    def side() -> dict[str, float]:
        scheduling, answering = Stopwatch(), Stopwatch()
        for _ in range(STEPS):
            with scheduling:
                scheduled = core.scheduler.schedule()
            if scheduled.total_num_scheduled_tokens != running:
                raise AssertionError(f"{running} decodes: {scheduled.num_scheduled_tokens}")
            with answering:
                core.answer(scheduled)
        scale = 1e6 / STEPS
        return {"": scheduling.seconds * scale, ", its output": answering.seconds * scale}

    return side


def _compare(running: int, waiting: int, asynchronous: bool, rounds: int) -> Iterator[Outcome]:
    steps = STEPS * (rounds + 2)
    sides: list[Any] = [
        _side(_decoding(ours, running, waiting, steps, asynchronous), running)
        for ours in (False, True, False)
    ]
    case = f"{running:,} running" + (f", {waiting:,} waiting" if waiting else "")
    if not asynchronous:
        case += ", sync"
    for part, series in measure(*sides, rounds).items():
        goal = None if part else GOAL
        yield Outcome.of("schedule", case + part, "µs/step", series, goal=goal)


def outcomes(quick: bool) -> Iterator[Outcome]:
    """The asynchronous scheduler, which vLLM uses by default, and the synchronous one once."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    for running in QUICK_RUNNING if quick else RUNNING:
        yield from _compare(running, 0, True, rounds)
    running, waiting = QUICK_WAITING if quick else WAITING
    yield from _compare(running, waiting, True, rounds)
    yield from _compare(running, 0, False, rounds)
