"""Attacks on what a tenant is promised of the pool, and on what it may hold at most."""

import random

from saltwall_security.bench.bench import Bench
from saltwall_security.bench.census import Census
from saltwall_security.bench.dialect import Quota
from saltwall_security.bench.engine import Engine, Job, Refused
from saltwall_security.bench.sighting import Prompts, Sighting

VICTIM = "victim"
ATTACKERS = ("attacker-1", "attacker-2", "attacker-3")
_FULL = 2
"""With so many free blocks a pool is full."""


def flood(bench: Bench, rng: random.Random, asynchronous: bool) -> Sighting:
    """Others flood the pool; what is left of what the victim had within its reserve, and above?"""
    reserve, prompts = 40, Prompts(rng)
    engine = bench.engine(
        blocks=96, asynchronous=asynchronous, quotas={VICTIM: Quota(reserve=reserve)}
    )
    census = Census(engine)
    within = [prompts.fresh(12) for _ in range(3)]
    for prompt in within:
        engine.serve(VICTIM, prompt)
    kept = census.count().cached(VICTIM)
    least_free = _flood(engine, census, prompts, rng)
    lost = len(kept - census.count().cached(VICTIM))
    hits = sum(engine.serve(VICTIM, prompt) for prompt in within)
    for _ in range(4):
        engine.serve(VICTIM, prompts.fresh(8))
    borrowed = census.count().held(VICTIM)
    lows: list[int] = []
    engine.watchers.append(lambda _: lows.append(census.count().held(VICTIM)))
    _flood(engine, census, prompts, rng)
    low, due = min(lows), sum(len(prompt) // 16 * 16 for prompt in within)
    return Sighting(
        lost > 0 or hits < due or low < reserve,
        f"took {lost} of the {len(kept)} blocks that the victim had cached within its reserve of "
        f"{reserve} (its prompts then hit {hits} of {due} tokens), and from the {borrowed} that it "
        f"held later left it {low}",
        {"lost_blocks": lost, "hit_tokens": hits, "due_tokens": due, "least_held_blocks": low},
        control=None if least_free <= _FULL else False,
    )


def _flood(engine: Engine, census: Census, prompts: Prompts, rng: random.Random) -> int:
    """Unique prompts of one token, long generations, and requests that are given up halfway.

    Returns:
        The fewest blocks that were free meanwhile.
    """
    jobs: list[Job] = []
    free: list[int] = []
    engine.watchers.append(lambda _: free.append(census.count().free))

    def send(blocks: int, output: int) -> None:
        job = engine.submit(rng.choice(ATTACKERS), prompts.fresh(blocks), output)
        if not isinstance(job, Refused):
            jobs.append(job)

    for _ in range(24):
        send(rng.randint(2, 9), 1)
        engine.step()
    for _ in range(8):
        send(6, 60)
    for _ in range(40):
        engine.step()
    for _ in range(12):
        send(rng.randint(4, 12), 30)
        engine.step()
        engine.abort(rng.choice([job for job in jobs if engine.alive(job)] or jobs))
    engine.run()
    return min(free)


def own_idle(bench: Bench, rng: random.Random, asynchronous: bool) -> Sighting:
    """A tenant below its reserve grows while others borrow the rest; does its cache survive?"""
    results = [_grow(bench, rng, asynchronous, pinned=pinned) for pinned in (False, True)]
    (idle_lost, _, idle_staged), (pinned_lost, served, pinned_staged) = results
    return Sighting(
        idle_lost > 0 or pinned_lost > 0 or not served,
        f"made the victim, below its reserve, recycle {idle_lost} of its 20 cached blocks where "
        f"others had borrowed idle blocks, and {pinned_lost} where they ran on them"
        + ("" if served else ", and it was not served at all"),
        {"lost_to_idle_blocks": idle_lost, "lost_to_pinned_blocks": pinned_lost},
        control=None if idle_staged and pinned_staged else False,
    )


def _grow(
    bench: Bench, rng: random.Random, asynchronous: bool, *, pinned: bool
) -> tuple[int, bool, bool]:
    """Blocks that the victim lost, whether it was served, and whether the pool was full."""
    prompts = Prompts(rng)
    engine = bench.engine(blocks=60, asynchronous=asynchronous, quotas={VICTIM: Quota(reserve=40)})
    census = Census(engine)
    for _ in range(2):
        engine.serve(VICTIM, prompts.fresh(10))
    kept = census.count().cached(VICTIM)
    if pinned:
        for attacker in (*ATTACKERS, *ATTACKERS[:1]):
            engine.submit(attacker, prompts.fresh(9), rng.randint(100, 150))
        for _ in range(6):
            engine.step()
    else:
        for _ in range(20):
            engine.serve(rng.choice(ATTACKERS), prompts.fresh(4))
    full = census.count().free <= _FULL
    job = engine.submit(VICTIM, prompts.fresh(9))
    for _ in range(40):
        if isinstance(job, Refused) or not engine.alive(job):
            break
        engine.step()
    lost = len(kept - census.count().cached(VICTIM))
    return lost, not isinstance(job, Refused) and job.tokens > 0, full


def ceiling(bench: Bench, rng: random.Random, asynchronous: bool) -> Sighting:
    """Tenants with ceilings send what they can, of all sizes; then a ceiling is lowered."""
    prompts = Prompts(rng)
    ceilings = {"greedy": 30, "strict": 20}
    engine = bench.engine(
        blocks=96,
        asynchronous=asynchronous,
        quotas={"greedy": Quota(ceiling=30), "strict": Quota(reserve=20, ceiling=20)},
    )
    census = Census(engine)
    peaks = dict.fromkeys(ceilings, 0)
    pins = dict.fromkeys(ceilings, 0)

    def note(_: object) -> None:
        count = census.count()
        for tenant in ceilings:
            peaks[tenant] = max(peaks[tenant], count.held(tenant))
            pins[tenant] = max(pins[tenant], len(count.pinned.get(tenant, ())))

    engine.watchers.append(note)
    for tenant in ceilings:
        for _ in range(10):
            engine.submit(tenant, prompts.fresh(rng.randint(2, 4)), 64)
    engine.run()
    for _ in range(20):
        for tenant in ceilings:
            engine.submit(tenant, prompts.fresh(rng.randint(1, 15)), rng.choice((1, 1, 20)))
        engine.step()
    engine.run()
    peak = max(peaks[tenant] - most for tenant, most in ceilings.items())
    bench.dialect.set_quotas(engine.core, {"greedy": Quota(ceiling=10)})
    engine.serve("strict", prompts.fresh(2))
    after = census.count().held("greedy")
    return Sighting(
        peak > 0 or after > 10,
        f"held up to {peaks['greedy']} blocks under a ceiling of 30, pinning {pins['greedy']} of "
        f"them, and {peaks['strict']} under a strict one of 20; {after} after it was lowered to 10",
        {
            "peak_held_blocks": peaks["greedy"],
            "peak_pinned_blocks": pins["greedy"],
            "peak_strict_blocks": peaks["strict"],
            "held_after_lowering_blocks": after,
        },
        control=None if peaks["greedy"] > 25 else False,
    )


def preemption(bench: Bench, rng: random.Random, asynchronous: bool) -> Sighting:
    """Generations outgrow the pool; the victim's fill its reserve, and are more than anybody's."""
    reserve, prompts = 30, Prompts(rng)
    engine = bench.engine(
        blocks=60, asynchronous=asynchronous, quotas={VICTIM: Quota(reserve=reserve)}
    )
    census = Census(engine)
    most = 0

    def note(_: object) -> None:
        nonlocal most
        most = max(most, len(census.count().pinned.get(VICTIM, ())))

    engine.watchers.append(note)
    others = [
        engine.submit(attacker, prompts.fresh(rng.randint(2, 4)), 190)
        for attacker in ATTACKERS
        for _ in range(2)
    ]
    engine.step()
    mine = [engine.submit(VICTIM, prompts.fresh(4), 145) for _ in range(2)]
    for _ in range(600):
        if not any(isinstance(job, Job) and engine.alive(job) for job in mine):
            break
        engine.step()
    suffered, elsewhere = (
        sum(job.request.num_preemptions for job in jobs if isinstance(job, Job))
        for jobs in (mine, others)
    )
    return Sighting(
        suffered > 0,
        f"cost the victim {suffered} preemptions while it pinned at most {most} blocks of a "
        f"reserve of {reserve}, and the others {elsewhere}",
        {"victim_preemptions": suffered, "other_preemptions": elsewhere, "victim_blocks": most},
        control=suffered + elsewhere > 0,
    )
