"""What a suite finds: checks, each of one claim, with the figures that decide it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    """How a check ended. Only `HELD` is a pass."""

    HELD = "held"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    """It was run and could not tell: too few samples, or the control was not detected."""
    NOT_TESTED = "not tested"
    """It was not run: what it needs was not given, or the target lacks the feature."""


@dataclass(frozen=True)
class Plot:
    """Data of one plot; the report draws it.

    Args:
        kind: "distribution" (each series' values are samples of x), "lines" or "points" (each
            series' values are y, at `x`).
        x: where the values of "lines" and "points" are.
        axes: what the axes show, with units.
        log: the axes to scale logarithmically: "", "x", "y" or "xy".
    """

    title: str
    kind: str
    series: Mapping[str, Sequence[float]]
    axes: tuple[str, str]
    x: Sequence[float] = ()
    log: str = ""


@dataclass(frozen=True)
class Check:
    """One claim, and what was seen of it.

    Args:
        id: "suite/name", the same in every run.
        guarantee: the one that fails with it ("G1" to "G12"); None for what is merely reported.
        claim: what should hold, as a sentence.
        seen: what was seen, as a sentence with the numbers that decide.
        figures: numbers by name with their unit in the name ("ttft_p50_s").
        control: what the same attack saw where there is something to see.
        advice: what to do about a failure.
    """

    id: str
    guarantee: str | None
    verdict: Verdict
    claim: str
    seen: str
    figures: Mapping[str, float | int | str | bool | None] = field(default_factory=dict)
    control: str | None = None
    plots: Sequence[Plot] = ()
    table: Sequence[Mapping[str, float | int | str | None]] = ()
    advice: str = ""


def judge(leak: bool, control: bool) -> Verdict:
    """The verdict of an attack with a paired control.

    Args:
        leak: whether the attack saw what it must not.
        control: whether it sees the same where it is there to be seen.
    """
    if leak:
        return Verdict.FAILED
    return Verdict.HELD if control else Verdict.INCONCLUSIVE


def not_made(
    suite: str,
    guarantee: str,
    claims: Mapping[str, str],
    why: str,
    verdict: Verdict = Verdict.NOT_TESTED,
) -> list[Check]:
    """Checks of a suite that were not made, by name; `why` says in a sentence what they lacked."""
    return [
        Check(f"{suite}/{name}", guarantee, verdict, claim, why) for name, claim in claims.items()
    ]


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict over several checks: one failure fails, and one doubt leaves doubt.

    What was not tested counts only where nothing was.
    """
    seen = set(verdicts)
    for verdict in (Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.HELD):
        if verdict in seen:
            return verdict
    return Verdict.NOT_TESTED
