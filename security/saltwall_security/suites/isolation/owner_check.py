"""Did the engine's second line of defence have to stop a hit that the hashes should not give?"""

import json

from saltwall_security.check import Check, Verdict, judge
from saltwall_security.engine_control import USAGE, EngineControl
from saltwall_security.errors import AuditError
from saltwall_security.target import Access, Target

ALARM = "ownership_mismatch"
CLAIM = "No block of one tenant has the hash of another's, so that the owner check stops nothing"


async def stopped_hits(target: Target) -> int | None:
    """How many hits on another's block the engine has stopped since it started; None: not said."""
    if Access.CONTROL not in target.access():
        return None
    try:
        async with EngineControl(target) as control:
            return int(json.loads(await control.text(USAGE))["alarms"].get(ALARM, 0))
    except (AuditError, ValueError, KeyError, TypeError, AttributeError):
        return None


def owner_check(before: int | None, after: int | None) -> Check:
    """A check over the engine's count before and after the attacks."""
    if before is None or after is None:
        seen = "Not tested: it takes the engine's control secret, and an engine that counts."
        return Check("isolation/owner-check", "G1", Verdict.NOT_TESTED, CLAIM, seen)
    grown = after - before
    return Check(
        "isolation/owner-check",
        "G1",
        judge(grown > 0, grown == 0),
        CLAIM,
        f"During the attacks the engine stopped {grown} hits on another tenant's block."
        if grown >= 0
        else "Not to be told: the engine began to count anew during the attacks.",
        {"stopped_hits": grown},
        advice="Look at what goes into the block hash: the salt is missing, or one for all."
        if grown > 0
        else "",
    )
