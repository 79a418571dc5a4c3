"""Collisions that are made, not found by chance: under weaker hashes, and in whose cache."""

import random
from collections.abc import Sequence

from saltwall_security.bench.process import BenchFailed, Examination
from saltwall_security.check import Check, Verdict, judge
from saltwall_security.collision import weak
from saltwall_security.collision.weak import Crafted
from saltwall_security.suite import Audit

_TASK_S = 60.0
_LEFT_PART = 0.1


def craft(audit: Audit) -> list[Crafted]:
    """All collisions that can be made in the time there is."""
    rng = random.Random(f"{audit.seed}/craft")  # noqa: S311  # reproducible, and guards nothing

    def lasts() -> bool:
        return audit.left_s > _LEFT_PART * audit.seconds

    return [pair for pair in (weak.xxhash(rng), weak.builtin(rng, lasts)) if pair is not None]


def weak_hashes(crafted: Sequence[Crafted]) -> Check:
    """Shows them to the hash that Saltwall is described to use."""
    fooled = any(pair.collides_here for pair in crafted)
    return Check(
        "collision/weak-hashes",
        "G8",
        judge(fooled, bool(crafted)),
        "Blocks made to collide under weaker hashes do not collide under SHA-256 of the encoding",
        f"{len(crafted)} pairs of token blocks collide under "
        + (", ".join(pair.algorithm for pair in crafted) or "none")
        + (", and some here." if fooled else ", and none here."),
        {f"{pair.algorithm}_other_parents": pair.parents for pair in crafted}
        | {"builtin_image_offsets_collide": weak.offsets_collide()},
        control="; ".join(
            f"{pair.algorithm}, {len(pair.first)} tokens: {pair.how}, under any parent"
            for pair in crafted
        )
        or None,
        advice="Never choose xxhash or xxhash_cbor for --prefix-caching-hash-algo.",
    )


async def ownership(
    crafted: Sequence[Crafted], stock: Examination, target: Examination | None
) -> Check:
    """Lets a stranger ask for a block that collides with a tenant's, on both pools."""
    if target is None:
        return _owned(Verdict.NOT_TESTED, "It needs the scheduler, installed here (--scheduler).")
    served: dict[str, int] = {}
    control: dict[str, int] = {}
    try:
        for pair in crafted:
            blocks = {"first": pair.first, "second": pair.second, "algorithm": pair.algorithm}
            control[pair.algorithm] = (await stock.ask("collide", _TASK_S, **blocks))[_STRANGER]
            served[pair.algorithm] = (await target.ask("collide", _TASK_S, **blocks))[_STRANGER]
    except BenchFailed as failure:
        return _owned(Verdict.INCONCLUSIVE, f"Not seen: {failure}.")
    return _owned(
        judge(any(served.values()), any(control.values())),
        "With another block of the same hash a stranger is served "
        + (", ".join(f"{n} tokens of a tenant's KV ({a})" for a, n in served.items()) or "nothing")
        + ".",
        control=", ".join(f"{n} tokens ({a})" for a, n in control.items()),
        **{f"{algorithm}_stranger_tokens": tokens for algorithm, tokens in served.items()},
    )


_STRANGER = "stranger_tokens"


def _owned(verdict: Verdict, seen: str, control: str = "", **figures: int) -> Check:
    return Check(
        "collision/ownership",
        "G8",
        verdict,
        "Even a collision of block hashes serves nobody another tenant's KV",
        seen,
        figures,
        control=f"In stock vLLM's pool it is {control}." if control else None,
        advice="Check a cached block's owner on every hit, besides its hash.",
    )
