"""G5, and what is left of it for others: whether a tenant's hits depend on what others do."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from saltwall_security.check import Check, Verdict, judge
from saltwall_security.suites.eviction.replay import Replay
from saltwall_security.suites.eviction.strategies import Strategy
from saltwall_security.suites.eviction.trial import Trial
from saltwall_security.suites.eviction.view import View

CLAIM = (
    "A strict tenant (its ceiling is its reserve) finds the same cached beside a flood as alone,"
    " request by request."
)
REPORTED = (
    "Reported, as nothing is promised: what a tenant sees of others in evictions of its own blocks"
    " above its reserve."
)


@dataclass(frozen=True)
class Twins:
    """A strict and an elastic tenant that replay their sequences beside one attack."""

    strategy: Strategy
    strict: Replay
    elastic: Replay

    @property
    def both(self) -> tuple[Replay, Replay]:
        """The two of them."""
        return self.strict, self.elastic


def strict_check(twins: Sequence[Twins]) -> Check:
    """G5: the strict tenant's sequences beside floods, element by element."""
    if not twins:
        said = "Not run: it takes an operator who can make a tenant strict (--home or --operator)."
        return Check("eviction/strict", "G5", Verdict.NOT_TESTED, CLAIM, said)
    strict, elastic = [each.strict for each in twins], [each.elastic for each in twins]
    differ, elastic_differ = _differences(strict), _differences(elastic)
    useful = sum(bool(cached) for each in strict for cached in each.alone)
    complete = [each for each in twins if each.strict.is_complete]
    told = useful > 0 and any(each.elastic.differences for each in complete)
    refused = " ".join(each.refused for pair in twins for each in pair.both if each.refused)
    verdict = judge(differ > 0, told)
    return Check(
        "eviction/strict",
        "G5",
        verdict,
        CLAIM,
        f"{differ} of {_sent(strict)} requests beside {len(twins)} attacks found something else"
        f" than alone, where {useful} had hits."
        + ("" if len(complete) == len(twins) else f" Some were not sent to their end. {refused}"),
        {
            "requests": _sent(strict),
            "requests_that_differ": differ,
            "requests_with_hits_alone": useful,
            "elastic_requests_that_differ": elastic_differ,
        },
        f"An elastic tenant with sequences of that kind: {elastic_differ} of {_sent(elastic)}"
        " differ.",
        table=[row for each in twins for row in _rows(each)],
        advice="Others' load shows in this tenant's hits: look for evictions that it suffers."
        if verdict is Verdict.FAILED
        else "",
    )


def _differences(replays: Iterable[Replay]) -> int:
    return sum(replay.differences for replay in replays)


def _sent(replays: Iterable[Replay]) -> int:
    return sum(len(replay.beside) for replay in replays)


def _rows(twins: Twins) -> Iterable[dict[str, float | int | str | None]]:
    strict, elastic = twins.both
    columns = zip(strict.alone, strict.beside, elastic.alone, elastic.beside, strict=False)
    for number, cached in enumerate(columns, start=1):
        names = ("strict_alone", "strict_beside", "elastic_alone", "elastic_beside")
        tokens = {f"{name}_tokens": found for name, found in zip(names, cached, strict=True)}
        yield {"attack": twins.strategy.name, "request": number, **tokens}


def own_view(trials: Sequence[Trial], view: View | None) -> Check:
    """What a tenant without a reserve sees of others in its own evictions; merely reported."""
    seen = [trial.exposed_ratio for trial in trials if trial.exposed_ratio is not None]
    least = min(seen, default=None)
    left = "could not be asked" if least is None else f"kept {least:.3f} of its hits at worst"
    return Check(
        "eviction/own-evictions",
        None,
        Verdict.INCONCLUSIVE if least is None else Verdict.HELD,
        REPORTED,
        f"While others flooded the cache, a tenant without a reserve {left}.{_told(view)}",
        {
            "hits_left_at_worst": least,
            "tokens_lost_to_one_neighbour": view.lost if view else None,
            "neighbour_shows": view.shows if view else None,
        },
    )


def _told(view: View | None) -> str:
    if view is None:
        return ""
    shows = "can" if view.shows else "cannot"
    return (
        f" A tenant that keeps the cache full of its own prompts loses {view.lost:,.0f} of their"
        f" tokens when a neighbour sends two prompts, and {shows} tell that from quiet each time."
    )
