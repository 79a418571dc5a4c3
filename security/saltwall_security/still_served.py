"""Whether a target serves after an attack what it served before."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from saltwall_security.check import Verdict

OK, TOO_MANY = 200, 429
AGAIN_S = 1.0
Answers = Sequence[int | str | None]
"""HTTP statuses, or what kept a request from being answered."""


async def still_served(
    before: Answers, ask: Callable[[], Awaitable[Answers]]
) -> tuple[Verdict, Answers]:
    """Asks after the attack, and once more a second later where something was not served.

    Args:
        before: what was answered before the attack; where that was no success nothing is told.
        ask: sends the same requests.
    """
    after = await ask()
    if not _served(after):  # one broken connection is nobody's work
        await asyncio.sleep(AGAIN_S)
        after = await ask()
    if not _served(before):
        return Verdict.INCONCLUSIVE, after
    if _served(after):
        return Verdict.HELD, after
    # A tenant's own limit is spent by the auditor's requests.
    limited = set(after) <= {OK, TOO_MANY}
    return Verdict.INCONCLUSIVE if limited else Verdict.FAILED, after


def _served(answers: Answers) -> bool:
    return set(answers) == {OK}
