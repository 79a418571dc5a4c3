"""The engine's own hasher, asked for the hashes of random requests with keys of every kind."""

from collections.abc import Mapping

from saltwall_security.bench.process import BenchFailed, Examination
from saltwall_security.check import Check, Verdict, judge
from saltwall_security.collision.injectivity import KINDS
from saltwall_security.suite import Audit

REQUESTS = 300
_TASK_S = 60.0
_TIMED_S = 0.3
_CLAIM = "The engine hashes every block as is described: whole digest, salt first, all keys tagged"


async def hasher(audit: Audit, examined: Examination | None) -> Check:
    """Compares it with our own implementation, block by block."""
    if examined is None:
        return _check(
            Verdict.NOT_TESTED,
            "It needs the scheduler, installed here (--scheduler).",
        )
    try:
        found = await examined.ask(
            "compare_hashes", _TASK_S, seed=f"{audit.seed}/hasher", count=REQUESTS
        )
    except BenchFailed as failure:
        return _check(Verdict.INCONCLUSIVE, f"Not compared: {failure}.")
    if found is None:
        return _check(
            Verdict.NOT_TESTED, "Not compared: this scheduler does not claim to hash like that."
        )
    compared, differing = found["compared"], found["differing"]
    seen = {part for kinds in compared for part in kinds.split("+")}
    wrong = sum(differing.values())
    return _check(
        judge(wrong > 0, seen == set(KINDS)),
        f"Of {sum(compared.values())} blocks of {REQUESTS} random requests, with keys of "
        f"{len(seen)} kinds, {wrong} have another hash than is described"
        + (
            f", those with {next(k for k, n in differing.items() if n)} among them."
            if wrong
            else "."
        ),
        blocks=sum(compared.values()),
        differing=wrong,
    )


async def time_algorithms(examined: Examination) -> Mapping[str, float | None] | None:
    """What a block costs under each of vLLM's algorithms (µs); None without vLLM."""
    try:
        timed: Mapping[str, float | None] = await examined.ask(
            "time_algorithms", _TASK_S, each_s=_TIMED_S
        )
    except BenchFailed:
        return None
    return timed


def _check(verdict: Verdict, seen: str, **figures: int) -> Check:
    return Check(
        "collision/hasher",
        "G8",
        verdict,
        _CLAIM,
        seen,
        figures,
        advice="Do not serve several tenants with this build: its block hash is another one.",
    )
