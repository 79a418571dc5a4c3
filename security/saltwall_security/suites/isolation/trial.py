"""One attempt to read another tenant's cache, with controls that show what there was to see."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import httpx

from saltwall_security.check import Verdict
from saltwall_security.client import Answer

Ask = Callable[[str], Awaitable[Answer]]
"""Sends a prompt in some way, as some tenant."""


class Outcome(StrEnum):
    """What came of a trial."""

    LEAK = "leak"
    HELD = "held"
    REFUSED = "refused"
    """The server takes no such request from the spy."""
    NOT_OFFERED = "not offered"
    """It takes none from the victim either."""
    UNTOLD = "untold"
    """The controls saw nothing, or something went wrong."""


@dataclass(frozen=True)
class Trial:
    """One attempt.

    Args:
        seen: cached tokens of the spy's first request for the victim's prompt.
        floor: what the spy's requests show for a prompt that nobody has sent (a chat template).
        victim: cached tokens when the victim repeats its prompt: what there was to see.
        own: cached tokens when the spy repeats it.
        why: what went wrong, or the status of a refusal.
    """

    way: str
    outcome: Outcome
    prompt_tokens: int | None = None
    seen: int | None = None
    floor: int | None = None
    victim: int | None = None
    own: int | None = None
    why: str = ""

    def row(self) -> Mapping[str, float | int | str | None]:
        """A line of the report's table."""
        return {
            "way": self.way,
            "outcome": self.outcome.value,
            "prompt_tokens": self.prompt_tokens,
            "cached_for_stranger": self.seen,
            "cached_of_unseen_prompt": self.floor,
            "cached_for_owner": self.victim,
            "cached_for_stranger_again": self.own,
            "note": self.why,
        }


async def attempt(
    way: str, victim: Ask, spy: Ask, fresh: Callable[[], str], floor: int | None = None
) -> Trial:
    """The victim sends a new prompt, then the spy does; then both again.

    Args:
        fresh: a prompt that nobody has sent.
        floor: as in `Trial`, where it is known; else it is measured.
    """
    prompt = fresh()
    warm = await sent(victim, prompt)
    if warm is None or not counted(warm):
        return _without(way, Outcome.NOT_OFFERED, warm)
    probe = await sent(spy, prompt)
    if probe is None or not counted(probe):
        return _without(way, Outcome.REFUSED, probe)
    unseen = await sent(spy, fresh()) if floor is None else None
    again, own = await sent(victim, prompt), await sent(spy, prompt)
    hits = [cached(answer) for answer in (again, own)]
    least = floor if unseen is None else cached(unseen)
    return _judged(way, probe, least, *hits)


async def sent(ask: Ask, prompt: str) -> Answer | None:
    """The answer, or none where the connection gave out."""
    try:
        return await ask(prompt)
    except httpx.HTTPError:
        return None


def counted(answer: Answer) -> bool:
    """Whether it is a whole answer with the tokens of its prompt."""
    return answer.ok and answer.prompt_tokens is not None


def cached(answer: Answer | None) -> int | None:
    """Its cached tokens; None where it does not say."""
    return answer.cached_tokens if answer is not None and counted(answer) else None


def _judged(
    way: str, probe: Answer, floor: int | None, victim: int | None, own: int | None
) -> Trial:
    seen, tokens = cached(probe), probe.prompt_tokens or 0
    # Servers that leave the number out where nothing was cached show it in the controls.
    shown = victim is not None and own is not None
    seen, floor = (seen or 0, floor or 0) if shown else (seen, floor or 0)

    def trial(outcome: Outcome, why: str = "") -> Trial:
        return Trial(way, outcome, tokens, seen, floor, victim, own, why)

    if floor * 2 > tokens:
        return trial(Outcome.UNTOLD, "even an unseen prompt counts as cached this way")
    if seen is not None and seen > floor:
        return trial(Outcome.LEAK)
    if victim is None or own is None:
        return trial(Outcome.UNTOLD, "the server does not show cached tokens")
    if min(victim, own) <= floor:
        return trial(Outcome.UNTOLD, "a repeat did not hit")
    return trial(Outcome.HELD)


def _without(way: str, outcome: Outcome, answer: Answer | None) -> Trial:
    if answer is None:
        return Trial(way, Outcome.UNTOLD, why="no answer")
    if answer.ok:
        return Trial(way, Outcome.UNTOLD, why="the answer does not count its tokens")
    if answer.status == 429 or answer.status >= 500:
        return Trial(way, Outcome.UNTOLD, why=f"status {answer.status}")
    return Trial(way, outcome, why=f"status {answer.status}")


def verdict(trials: Sequence[Trial]) -> Verdict:
    """One leak fails; one that could not be told leaves doubt; none at all tests nothing."""
    outcomes = {trial.outcome for trial in trials}
    if Outcome.LEAK in outcomes:
        return Verdict.FAILED
    if Outcome.UNTOLD in outcomes:
        return Verdict.INCONCLUSIVE
    return Verdict.HELD if outcomes & {Outcome.HELD, Outcome.REFUSED} else Verdict.NOT_TESTED


def summary(trials: Sequence[Trial]) -> str:
    """What was seen, as a sentence."""
    by = {outcome: [t for t in trials if t.outcome is outcome] for outcome in Outcome}
    leaks, held = by[Outcome.LEAK], by[Outcome.HELD]
    parts = []
    if leaks:
        worst = max(leaks, key=lambda trial: trial.seen or 0)
        parts.append(
            f"In {len(leaks)} of {len(trials)} ways a stranger hit the owner's prompt: "
            f"{worst.seen} of {worst.prompt_tokens} tokens ({worst.way})"
        )
    if held:
        parts.append(
            f"in {len(held)} of {len(trials)} ways the stranger's first request showed no more "
            f"than an unseen prompt, {_span(t.seen for t in held)} cached tokens, and the owner's "
            f"repeat {_span(t.victim for t in held)}"
        )
    for outcome, told in (
        (Outcome.REFUSED, "refused"),
        (Outcome.NOT_OFFERED, "not offered"),
        (Outcome.UNTOLD, "could not be told"),
    ):
        if by[outcome]:
            reasons = sorted({trial.why for trial in by[outcome]})
            parts.append(f"{len(by[outcome])} {told} ({'; '.join(reasons)})")
    text = "; ".join(parts) or "nothing was tried"
    return f"{text[0].upper()}{text[1:]}."


def figures(trials: Sequence[Trial]) -> Mapping[str, float | int | str | bool | None]:
    """The numbers that decide."""
    seen = [trial.seen for trial in trials if trial.seen is not None]
    owners = [trial.victim for trial in trials if trial.victim is not None]
    return {
        "ways": len(trials),
        "leaks": sum(trial.outcome is Outcome.LEAK for trial in trials),
        "refused": sum(trial.outcome is Outcome.REFUSED for trial in trials),
        "untold": sum(trial.outcome is Outcome.UNTOLD for trial in trials),
        "cached_for_stranger_max_tokens": max(seen, default=None),
        "cached_for_owner_min_tokens": min(owners, default=None),
    }


def control(trials: Sequence[Trial]) -> str | None:
    """What the same requests saw where there was something to see."""
    told = [t for t in trials if t.victim is not None and t.own is not None]
    if not told:
        return None
    return (
        f"The owner's repeat hit {_span(t.victim for t in told)} tokens, and the stranger's own "
        f"repeat {_span(t.own for t in told)}."
    )


def _span(values: Iterable[int | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "none"
    low, high = min(known), max(known)
    return f"{low}" if low == high else f"{low} to {high}"
