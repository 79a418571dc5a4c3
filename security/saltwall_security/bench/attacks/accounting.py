"""A storm of everything that takes blocks and gives them back; what is left when it is over?"""

import random

from saltwall_security.bench.bench import Bench
from saltwall_security.bench.census import Census, Count
from saltwall_security.bench.dialect import Quota
from saltwall_security.bench.engine import Engine, Job, Refused
from saltwall_security.bench.sighting import Prompts, Sighting

TENANTS = ("one", "two", "three")


def accounting(bench: Bench, rng: random.Random, asynchronous: bool) -> Sighting:
    """Aborts in every state, copies of one prompt, preemption, changed quotas; then a count."""
    engine = bench.engine(
        blocks=56,
        slots=12,
        asynchronous=asynchronous,
        quotas={"one": Quota(reserve=25), "two": Quota(reserve=5, ceiling=40)},
    )
    census = Census(engine)
    wrong = _storm(bench, engine, census, rng)
    over = engine.run()
    count = census.count()
    pinned = sum(len(ids) for ids in count.pinned.values())
    unfinished = len(engine.scheduler.requests)
    free = engine.pool.get_num_free_blocks()
    wrong += _disagreements(bench, engine, count)
    for tenant in TENANTS:
        bench.dialect.purge(engine.core, tenant)
    left = census.count()
    wrong += _disagreements(bench, engine, left)
    cached = sum(len(ids) for ids in left.idle.values()) if bench.dialect.has_tenants else 0
    preempted = sum(job.request.num_preemptions for job in engine.jobs.values())
    # The control: one reference that nobody gives back must show in the same count.
    stray = next(block for block in engine.pool.blocks if block.ref_cnt == 0 and not block.is_null)
    stray.ref_cnt += 1
    seen = any(census.count().pinned.values())
    stray.ref_cnt -= 1
    return Sighting(
        bool(pinned or unfinished or wrong or cached or not over or free != engine.shape.blocks),
        f"left {pinned} blocks pinned, {unfinished} requests and {cached} blocks that a purge does "
        f"not reach, with {free} of {engine.shape.blocks} blocks free after {preempted} "
        f"preemptions; {wrong} times a tenant held something else than was reported",
        {
            "pinned_blocks": pinned,
            "unfinished_requests": unfinished,
            "unpurged_blocks": cached,
            "misreported": wrong,
            "preemptions": preempted,
        },
        control=seen and preempted > 0,
    )


def _storm(bench: Bench, engine: Engine, census: Census, rng: random.Random) -> int:
    """Returns how often a tenant held something else than was reported of it."""
    prompts = Prompts(rng)
    jobs: list[Job] = []
    wrong = 0
    for _ in range(6):  # together they outgrow the pool, so that some are preempted
        engine.submit("three", prompts.fresh(6), 110)
    for _ in range(30):
        engine.step()
    engine.submit("one", prompts.fresh(16))
    for turn in range(150):
        tenant, prompt = rng.choice(TENANTS), prompts.fresh(rng.randint(0, 8), rng.randint(1, 15))
        for _ in range(rng.choice((0, 1, 1, 4))):
            job = engine.submit(tenant, prompt, rng.choice((1, 3, 60, 120)))
            if not isinstance(job, Refused):
                jobs.append(job)
        live = [job for job in jobs if engine.alive(job)]
        if rng.random() < 0.3:
            engine.abort(*rng.sample(live, min(len(live), rng.randint(1, 4))))
        if turn == 75:
            bench.dialect.set_quotas(
                engine.core, {"two": Quota(ceiling=15), "three": Quota(reserve=20)}
            )
        engine.step()
        if turn % 10 == 0:
            wrong += _disagreements(bench, engine, census.count())
    return wrong


def _disagreements(bench: Bench, engine: Engine, count: Count) -> int:
    """Tenants of which the scheduler reports something else than we count."""
    reported = bench.dialect.holdings(engine.core, TENANTS)
    if reported is None:
        return 0
    return sum(
        (holding.pinned, holding.idle)
        != (len(count.pinned.get(tenant, ())), len(count.idle.get(tenant, ())))
        for tenant, holding in reported.items()
    )
