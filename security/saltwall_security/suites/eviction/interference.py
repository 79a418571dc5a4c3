"""G5, and what is left of it for others: whether a tenant's hits depend on what others do."""

from collections.abc import Sequence

from saltwall_security.check import Check, Verdict, judge
from saltwall_security.suites.eviction.replay import Replay
from saltwall_security.suites.eviction.trial import Trial


def strict_check(strict: Replay | None, elastic: Replay | None) -> Check:
    """G5: the strict tenant's sequence beside a flood, element by element."""
    claim = (
        "A strict tenant (its ceiling is its reserve) finds the same cached beside a flood as"
        " alone, request by request."
    )
    if strict is None or elastic is None:
        said = "Not run: it takes an operator who can make a tenant strict (--home or --operator)."
        return Check("eviction/strict", "G5", Verdict.NOT_TESTED, claim, said)
    useful = sum(bool(cached) for cached in strict.alone)
    told = strict.is_complete and elastic.is_complete and useful > 0
    verdict = judge(strict.differences > 0, told and elastic.differences > 0)
    why = "" if told else f" It was not finished.{strict.refused}{elastic.refused}"
    return Check(
        "eviction/strict",
        "G5",
        verdict,
        claim,
        f"{strict.differences} of {len(strict.beside)} requests found something else beside the"
        f" flood; {useful} of {len(strict.alone)} had hits alone.{why}",
        {
            "requests": len(strict.beside),
            "requests_that_differ": strict.differences,
            "requests_with_hits_alone": useful,
            "elastic_requests_that_differ": elastic.differences,
        },
        f"An elastic tenant with a sequence like it: {elastic.differences} of"
        f" {len(elastic.beside)} differ.",
        table=[
            {
                "request": number + 1,
                "strict_alone_tokens": strict.alone[number],
                "strict_beside_tokens": beside,
                "elastic_alone_tokens": _at(elastic.alone, number),
                "elastic_beside_tokens": _at(elastic.beside, number),
            }
            for number, beside in enumerate(strict.beside)
        ],
        advice="Others' load shows in this tenant's hits: look for evictions that it suffers."
        if verdict is Verdict.FAILED
        else "",
    )


def _at(values: Sequence[int | None], number: int) -> int | None:
    return values[number] if number < len(values) else None


def own_view(trials: Sequence[Trial], elastic: Replay | None) -> Check:
    """What a tenant without a reserve sees of others in its own evictions; merely reported."""
    seen = [trial.exposed_ratio for trial in trials if trial.exposed_ratio is not None]
    least = min(seen, default=None)
    replayed = (
        f" Of a recorded sequence, {elastic.differences} of {len(elastic.beside)} requests found"
        " less."
        if elastic is not None and elastic.beside
        else ""
    )
    shows = "it can tell that others are busy" if (least or 0) < 1 else "nothing of others shows"
    left = "could not be asked" if least is None else f"kept {least:.3f} of its hits at worst"
    return Check(
        "eviction/own-evictions",
        None,
        Verdict.INCONCLUSIVE if least is None else Verdict.HELD,
        "Reported, as nothing is promised: what a tenant sees of others in evictions of its own"
        " blocks above its reserve.",
        f"While others were busy, a tenant without a reserve {left}: {shows}.{replayed}",
        {"hits_left_at_worst": least},
    )
