"""Attacks on a tenant's turn: others fill the queue, the slots or the pool before it comes."""

import random
from collections import Counter
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

from saltwall_security.bench.bench import Bench
from saltwall_security.bench.clock import FAST_TOKEN_S
from saltwall_security.bench.dialect import Quota
from saltwall_security.bench.engine import Engine, Job, Refused
from saltwall_security.bench.sighting import Prompts, Sighting

VICTIM, OTHERS = "victim", ("other-1", "other-2")
BLOCKED_STEPS = 3
"""Steps that a request may wait for which there is everything that it needs."""
PATIENCE = 6
"""Steps that a request within its tenant's reserve may wait, while room is reclaimed for it."""
HEAVY = 4.0
"""The weight of one tenant, of which another one's is 1."""
SLOWER = 12.0
"""How many times longer a step may take while others' prompts are computed than without them."""
_MOST = 60
_WARM = 20


def head_of_line(bench: Bench, rng: random.Random, asynchronous: bool) -> Sighting:
    """Requests that cannot be served wait; does a small one of another tenant wait behind them?"""
    ceiling, pool = (
        _behind(bench, rng, asynchronous, blocks=96, first=9, blocked=10, quota=Quota(ceiling=16)),
        _behind(bench, rng, asynchronous, blocks=60, first=36, blocked=40, quota=Quota()),
    )
    return Sighting(
        max(ceiling.steps, pool.steps) > BLOCKED_STEPS,
        f"made a small request wait {ceiling.steps} steps behind requests that wait for their own "
        f"tenant's ceiling, and {pool.steps} behind some that are too large for now",
        {"wait_behind_ceiling_steps": ceiling.steps, "wait_behind_large_steps": pool.steps},
        control=None if pool.staged else False,
    )


class _Wait(NamedTuple):
    """Steps that a request waited for, and whether others did all the time."""

    steps: int
    staged: bool


def _behind(
    bench: Bench,
    rng: random.Random,
    asynchronous: bool,
    *,
    blocks: int,
    first: int,
    blocked: int,
    quota: Quota,
) -> _Wait:
    """Has the victim wait behind another tenant's requests, which lack blocks."""
    prompts = Prompts(rng)
    engine = bench.engine(
        blocks=blocks, step_tokens=2048, asynchronous=asynchronous, quotas={"bulk": quota}
    )
    runner = "bulk" if quota.ceiling is not None else "runner"
    engine.submit(runner, prompts.fresh(first), 70)
    engine.step()
    engine.step()
    before = [engine.submit("bulk", prompts.fresh(blocked), 10) for _ in range(3)]
    engine.step()
    job = engine.submit(VICTIM, prompts.fresh(rng.randint(1, 3)), 2)
    steps = _wait(engine, job, lambda: None)
    return _Wait(steps, all(isinstance(other, Job) and other.first is None for other in before))


def _wait(engine: Engine, job: Job | Refused, busy: Callable[[], None]) -> int:
    """Steps until a request is first scheduled, and then ends; `_MOST` if it is not."""
    if isinstance(job, Refused):
        return _MOST
    while job.first is None and job.waited(engine.steps) < _MOST:
        busy()
        engine.step()
    waited = job.waited(engine.steps) - 1 if job.first is not None else _MOST
    for _ in range(_MOST):
        if waited == _MOST or not engine.alive(job):
            break
        busy()
        engine.step()
    return max(waited, 0)


def starvation(bench: Bench, rng: random.Random, asynchronous: bool) -> Sighting:
    """A victim sends one request after the other, while others always have a hundred waiting."""
    waits = {
        "queue": _flooded(
            bench, rng, asynchronous, output=1, slots=8, blocks=96, token_s=FAST_TOKEN_S
        ),
        "steps": _flooded(bench, rng, asynchronous, output=1, slots=8, blocks=96),
        "slots": _flooded(bench, rng, asynchronous, output=120, slots=8, blocks=160),
        "blocks": _flooded(bench, rng, asynchronous, output=120, slots=32, blocks=60),
    }
    return Sighting(
        any(wait.steps > PATIENCE for wait in waits.values()),
        "made the victim wait at most "
        + ", ".join(f"{wait.steps} steps with the {what} full" for what, wait in waits.items()),
        {f"longest_wait_{what}_steps": wait.steps for what, wait in waits.items()},
        control=None if all(wait.staged for wait in waits.values()) else False,
    )


def weights(bench: Bench, rng: random.Random, asynchronous: bool) -> Sighting:
    """Two tenants always have prompts waiting, and tokens alone are short: who is served more?"""
    prompts = Prompts(rng)
    engine = bench.engine(
        blocks=600,
        slots=64,
        step_tokens=512,
        asynchronous=asynchronous,
        quotas={"heavy": Quota(weight=HEAVY)},
    )
    waiting: dict[str, list[Job]] = {"light": [], "heavy": []}
    served = Counter[str]()

    def watch(scheduled: Any) -> None:
        for name, tokens in scheduled.num_scheduled_tokens.items():
            served[engine.jobs[name].tenant] += tokens

    engine.watchers.append(watch)
    staged = True
    for step in range(_WARM + 100):
        if step == _WARM:
            served.clear()
        for tenant, jobs in waiting.items():
            jobs[:] = [job for job in jobs if job.first is None]
            while len(jobs) < 20:
                job = engine.submit(tenant, prompts.fresh(8))
                if isinstance(job, Refused):
                    return Sighting(False, "was refused", control=False)
                jobs.append(job)
        engine.step()
        staged = staged and all(any(job.first is None for job in x) for x in waiting.values())
    ratio = served["heavy"] / max(1, served["light"])
    return Sighting(
        ratio < HEAVY / 2,
        f"had a tenant of weight {HEAVY:.0f} served {ratio:.1f} times the tokens of one of weight "
        "1, while both had prompts waiting",
        {"served_heavy_tokens": served["heavy"], "served_light_tokens": served["light"]},
        control=None if staged else False,
    )


def long_steps(bench: Bench, rng: random.Random, asynchronous: bool) -> Sighting:
    """A victim generates, while others' long prompts are computed: what do its steps take then?"""
    prompts = Prompts(rng)
    engine = bench.engine(blocks=400, slots=8, step_tokens=2048, asynchronous=asynchronous)
    victim = engine.submit(VICTIM, prompts.fresh(2), 200)

    def steps(count: int, flood: bool) -> float:
        """Seconds that such a step takes, typically."""
        taken = []
        for _ in range(count):
            for tenant in OTHERS if flood and len(engine.scheduler.waiting) < 4 else ():
                engine.submit(tenant, prompts.fresh(40))
            before = bench.clock.now
            engine.step()
            taken.append(bench.clock.now - before)
        return median(taken)

    steps(4, flood=False)
    alone = steps(10, flood=False)
    steps(30, flood=True)
    beside = steps(40, flood=True)
    return Sighting(
        beside > SLOWER * alone,
        f"made a step take {1000 * beside:.0f} ms instead of {1000 * alone:.0f} ms",
        {"step_alone_s": alone, "step_beside_prompts_s": beside},
        control=None if isinstance(victim, Job) and engine.alive(victim) else False,
    )


def _flooded(
    bench: Bench, rng: random.Random, asynchronous: bool, *, output: int, **shape: float
) -> _Wait:
    """The longest of the victim's waits."""
    prompts = Prompts(rng)
    engine = bench.engine(asynchronous=asynchronous, quotas={VICTIM: Quota(reserve=24)}, **shape)
    waiting: list[Job] = []

    def busy() -> None:
        waiting[:] = [job for job in waiting if job.first is None]
        while len(waiting) < 100:
            job = engine.submit(rng.choice(OTHERS), prompts.fresh(rng.randint(2, 4)), output)
            if isinstance(job, Refused):
                return
            waiting.append(job)

    for _ in range(12):
        busy()
        engine.step()
    longest, staged = 0, True
    for _ in range(5):
        longest = max(longest, _wait(engine, engine.submit(VICTIM, prompts.fresh(4), 3), busy))
        staged = staged and len(waiting) > 50
        if longest == _MOST:
            break
        for _ in range(4):
            busy()
            engine.step()
    return _Wait(longest, staged)
