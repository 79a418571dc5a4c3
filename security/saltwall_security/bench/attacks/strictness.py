"""Does a strict tenant notice anybody else?"""

import random
from collections.abc import Sequence
from typing import NamedTuple

from saltwall_security.bench.bench import Bench
from saltwall_security.bench.census import Census
from saltwall_security.bench.dialect import Quota
from saltwall_security.bench.engine import Refused
from saltwall_security.bench.sighting import Prompts, Sighting

TENANT, OTHERS = "strict", ("other-1", "other-2")
SHARE = 30
_REQUESTS = 30


class _Trace(NamedTuple):
    """What a tenant can see of itself: each request's hit tokens, and what it then has cached."""

    hits: list[int]
    cached: list[frozenset[bytes]]


def strict(bench: Bench, rng: random.Random, asynchronous: bool) -> Sighting:
    """The same requests, one at a time, alone and beside others: hits and cache must be the same.

    The control is the same tenant without a reserve, whom others do evict.
    """
    requests = _requests(rng)
    mine = Quota(reserve=SHARE, ceiling=SHARE)
    alone = _trace(bench, requests, None, mine, asynchronous)
    elastic_alone = _trace(bench, requests, None, Quota(), asynchronous)
    differing = elastic = 0
    for seed in (rng.random(), rng.random()):
        beside = _trace(bench, requests, random.Random(seed), mine, asynchronous)  # noqa: S311
        differing += _differences(alone, beside)
        free = _trace(bench, requests, random.Random(seed), Quota(), asynchronous)  # noqa: S311
        elastic += _differences(elastic_alone, free)
    return Sighting(
        differing > 0,
        f"changed hits or cache after {differing} of {2 * len(requests)} requests of a strict "
        f"tenant ({sum(alone.hits)} hit tokens alone), and after {elastic} of an elastic one's",
        {"differing_requests": differing, "elastic_differing_requests": elastic},
        control=elastic > 0,
    )


def _requests(rng: random.Random) -> list[tuple[list[int], int]]:
    """Prompts with shared beginnings, more of them than the tenant's share holds."""
    prompts = Prompts(rng)
    roots = [prompts.fresh(3, 0) for _ in range(5)]
    return [
        (rng.choice(roots) + prompts.fresh(rng.randint(0, 6)), rng.choice((1, 1, 2, 20)))
        if rng.random() < 0.8
        else (rng.choice(roots) * 2, 1)
        for _ in range(_REQUESTS)
    ]


def _trace(
    bench: Bench,
    requests: Sequence[tuple[list[int], int]],
    others: random.Random | None,
    quota: Quota,
    asynchronous: bool,
) -> _Trace:
    engine = bench.engine(blocks=90, asynchronous=asynchronous, quotas={TENANT: quota})
    census = Census(engine)
    trace = _Trace([], [])
    prompts = Prompts(others) if others is not None else None
    for prompt, output in requests:
        job = engine.submit(TENANT, prompt, output)
        for _ in range(300):
            if isinstance(job, Refused) or not engine.alive(job):
                break
            if others is not None and prompts is not None and others.random() < 0.7:
                length = others.choice((1, 1, 30))
                engine.submit(others.choice(OTHERS), prompts.fresh(others.randint(1, 10)), length)
            engine.step()
        cached = -1 if isinstance(job, Refused) or job.cached is None else job.cached
        trace.hits.append(cached)
        trace.cached.append(census.count().cached(TENANT))
    return trace


def _differences(one: _Trace, other: _Trace) -> int:
    pairs = zip(one.hits, one.cached, strict=True), zip(other.hits, other.cached, strict=True)
    return sum(mine != theirs for mine, theirs in zip(*pairs, strict=True))
