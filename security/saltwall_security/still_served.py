"""Whether a target serves after an attack what it served before."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from saltwall_security.check import Verdict

OK, TOO_MANY = 200, 429
REFUSED = frozenset({401, 403})
AGAIN_S, PATIENCE_S = 1.0, 30.0
"""How often, and how long, it is asked again: a restart takes its time."""
Answers = Sequence[int | str | None]
"""HTTP statuses, or what kept a request from being answered."""


async def still_served(
    before: Answers,
    ask: Callable[[], Awaitable[Answers]],
    silent: Verdict = Verdict.FAILED,
) -> tuple[Verdict, Answers]:
    """Asks after the attack, and again for half a minute while something is not served.

    Args:
        before: what was answered before the attack; where that was no success nothing is told.
        ask: sends the same requests.
        silent: what it means that a target answers no more, or with an error of its own, where that
            may not be the attack's work.
    """
    after, until = await ask(), time.monotonic() + PATIENCE_S
    if not _served(before):
        return Verdict.INCONCLUSIVE, after
    while not _served(after):
        await asyncio.sleep(AGAIN_S)
        after = await ask()
        if time.monotonic() > until:
            break
    if _served(after):
        return Verdict.HELD, after
    if REFUSED & set(after):
        return Verdict.FAILED, after
    # A tenant's own limit is spent by the auditor's requests.
    limited = set(after) <= {OK, TOO_MANY}
    return Verdict.INCONCLUSIVE if limited else silent, after


def _served(answers: Answers) -> bool:
    return set(answers) == {OK}
