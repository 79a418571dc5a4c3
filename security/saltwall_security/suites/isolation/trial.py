"""One attempt to read another tenant's cache, with controls that show what there was to see."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import httpx

from saltwall_security.check import Verdict
from saltwall_security.client import Answer

EVICTED = "a repeat did not hit"
NO_ANSWER = "no answer"
HIDDEN = "even an unseen prompt counts as cached this way"
INTERFERES = "one tenant's copy of a prompt costs the other its own"
UNCONFIRMED = "a hit that did not come again"
ROUNDS, FLOORS = 8, 4
"""Where eviction is to blame, a round speaks for interference one time in four at most."""
Ask = Callable[[str], Awaitable[Answer]]
"""Sends a prompt in some way, as some tenant."""


class Outcome(StrEnum):
    """What came of a trial."""

    LEAK = "leak"
    HELD = "held"
    REFUSED = "refused"
    """The server takes no such request from the spy, but others."""
    NOT_OFFERED = "not offered"
    """It takes none from the victim either."""
    UNTOLD = "untold"
    """The controls saw nothing, or something went wrong."""
    HIDDEN = "hidden"
    """Likewise, where ways that are much the same could be told."""


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


@dataclass(frozen=True)
class Way:
    """How a victim and a spy send the same prompt.

    Args:
        floor: as in `Trial`, where it is known; else it is measured.
        brief: the spy does not repeat a request that has counted its cached tokens: one that reads
            no cache is no attack, and whether there was something to read the victim shows.
        dressed: the spy asks for what tenants do not usually ask for, and may be refused.
        prompt: where from the prompt is, if no fresh one does; empty if there is none left.
    """

    name: str
    victim: Ask
    spy: Ask
    floor: int | None = None
    brief: bool = False
    dressed: bool = False
    prompt: Callable[[], str] | None = None


async def attempt(way: Way, fresh: Callable[[], str]) -> Trial:
    """The victim sends a new prompt, then the spy does; then both again.

    Args:
        fresh: a prompt that nobody has sent.
    """
    try:
        return await _attempt(way, fresh)
    except httpx.HTTPError:
        return Trial(way.name, Outcome.UNTOLD, why=NO_ANSWER)


async def _attempt(way: Way, fresh: Callable[[], str]) -> Trial:
    prompt = way.prompt() if way.prompt else fresh()
    if not prompt:
        return Trial(way.name, Outcome.UNTOLD, why="no prompt was left")
    warm = await way.victim(prompt)
    if not counted(warm):
        return _without(way.name, Outcome.NOT_OFFERED, warm)
    probe = await way.spy(prompt)
    if not counted(probe):
        return _without(way.name, Outcome.REFUSED if way.dressed else Outcome.UNTOLD, probe)
    floor = way.floor
    if floor is None:
        floor = cached(await way.spy(fresh()))
    controls = [cached(await way.victim(prompt))]
    if not way.brief or cached(probe) is None:
        controls.append(cached(await way.spy(prompt)))
    trial = _judged(way.name, probe, floor or 0, *controls)
    if trial.outcome is Outcome.LEAK:
        # What a template adds may have been evicted when it was measured, or is in another replica.
        floors = [cached(await way.spy(fresh())) or 0 for _ in range(FLOORS)]
        floor = max(floor or 0, *floors)
        trial = _judged(way.name, probe, floor, *controls)
    return trial


async def interferes(way: Way, trial: Trial, fresh: Callable[[], str]) -> bool:
    """Whether a repeat misses because both sent the same prompt, and for no other reason.

    So it is where two tenants' blocks have one hash and a later check keeps them apart: the spy
    hits nothing, yet sees what the victim has cached by what it cannot cache itself. Each round
    makes the same requests twice, in changing order: with one prompt for both, and one for each.
    """
    floor = trial.floor or 0
    owner = stranger = True
    for number in range(ROUNDS):
        same = fresh()
        pairs = [(same, same), (fresh(), fresh())]
        if number % 2:
            pairs.reverse()
        made = [await _round(way, *pair) for pair in pairs]
        shared, apart = made if not number % 2 else reversed(made)
        owner = owner and shared[0] <= floor < apart[0]
        stranger = stranger and shared[1] <= floor < apart[1]
        if not owner and not stranger:
            return False
    return True


async def _round(way: Way, theirs: str, mine: str) -> tuple[int, int]:
    """Cached tokens of the victim's and the spy's repeats."""
    await sent(way.victim, theirs)
    await sent(way.spy, mine)
    owner = cached(await sent(way.victim, theirs))
    stranger = cached(await sent(way.spy, mine))
    return owner or 0, stranger or 0


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


def _judged(way: str, probe: Answer, floor: int, *controls: int | None) -> Trial:
    seen, tokens = cached(probe), probe.prompt_tokens or 0
    hits = [hit for hit in controls if hit is not None]
    shown = len(hits) == len(controls)
    if seen is None and shown:
        seen = 0  # some servers leave the number out where nothing was cached
    victim, own = controls[0], controls[1] if len(controls) > 1 else None

    def trial(outcome: Outcome, why: str = "") -> Trial:
        return Trial(way, outcome, tokens, seen, floor, victim, own, why)

    if floor * 2 > tokens:
        return trial(Outcome.UNTOLD, HIDDEN)
    if seen is not None and seen > floor:
        return trial(Outcome.LEAK)
    if not shown:
        return trial(Outcome.UNTOLD, "the server does not show cached tokens")
    if min(hits) <= floor:
        return trial(Outcome.UNTOLD, EVICTED)
    return trial(Outcome.HELD)


def _without(way: str, outcome: Outcome, answer: Answer) -> Trial:
    if answer.ok:
        return Trial(way, Outcome.UNTOLD, why="the answer does not count its tokens")
    if answer.status == 429 or answer.status >= 500:
        return Trial(way, Outcome.UNTOLD, why=f"status {answer.status}")
    return Trial(way, outcome, why=f"status {answer.status}")


def verdict(trials: Sequence[Trial]) -> Verdict:
    """One leak fails; one that could not be told leaves doubt; none at all tests nothing.

    What was hidden decides nothing.
    """
    outcomes = {trial.outcome for trial in trials}
    if Outcome.LEAK in outcomes:
        return Verdict.FAILED
    if Outcome.UNTOLD in outcomes:
        return Verdict.INCONCLUSIVE
    return Verdict.HELD if outcomes & {Outcome.HELD, Outcome.REFUSED} else Verdict.NOT_TESTED


def summary(trials: Sequence[Trial]) -> str:
    """What was seen, as a sentence."""
    by = {outcome: [t for t in trials if t.outcome is outcome] for outcome in Outcome}
    found, held = by[Outcome.LEAK], by[Outcome.HELD]
    leaks = [trial for trial in found if trial.why != INTERFERES]
    parts = []
    if len(found) > len(leaks):
        parts.append(
            f"In {len(found) - len(leaks)} of {len(trials)} ways a prompt that both tenants had "
            f"sent was cached for one of them only, in {ROUNDS} of {ROUNDS} rounds, and different "
            "prompts for both: that shows what the other has cached"
        )
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
        (Outcome.REFUSED, "refused, beside plain prompts that were served"),
        (Outcome.NOT_OFFERED, "not offered"),
        (Outcome.UNTOLD, "could not be told"),
        (Outcome.HIDDEN, "not to be told, and left out"),
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
        "hidden": sum(trial.outcome is Outcome.HIDDEN for trial in trials),
        "cached_for_stranger_max_tokens": max(seen, default=None),
        "cached_for_owner_min_tokens": min(owners, default=None),
    }


def control(trials: Sequence[Trial]) -> str | None:
    """What the same requests saw where there was something to see."""
    owners = [t.victim for t in trials if t.victim is not None]
    if not owners:
        return None
    own = [t.own for t in trials if t.own is not None]
    again = f", and the stranger's own repeat {_span(own)}" if own else ""
    return f"The owner's repeat hit {_span(owners)} tokens{again}."


def _span(values: Iterable[int | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "none"
    low, high = min(known), max(known)
    return f"{low}" if low == high else f"{low} to {high}"
