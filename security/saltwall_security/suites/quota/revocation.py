"""G7: whether quotas that the engine refuses hold up a revocation that comes with them."""

import asyncio

from saltwall_security.check import Check, Verdict, judge
from saltwall_security.ending import CONTRACT_S, FAILS_S
from saltwall_security.errors import AuditError
from saltwall_security.suites.quota.stage import LIVE_WITHIN_S, Stage

CLAIM = "Quotas that an engine refuses delay no revocation: a suspended tenant loses its cache"


async def check_revocation(stage: Stage) -> Check:
    """Stores a reserve that no engine has, suspends the other tenant, and reads the books.

    The reserve is taken back; the tenant stays suspended.
    """
    operator, control = stage.operator, stage.control
    await stage.fill(stage.other, 1, 2.5, at_once=1)
    before = await control.usage()
    try:
        await asyncio.to_thread(operator.oversell, stage.tenant, stage.pool + 1)
    except AuditError as error:
        said = f"No reserve beyond the engine's blocks could be stored: {error}"
        return Check("quota/revocation", "G7", Verdict.NOT_TESTED, CLAIM, said)
    try:
        now, _ = await control.until(
            lambda usage: usage.quota_refusals > before.quota_refusals, LIVE_WITHIN_S
        )
        refusals = now.quota_refusals - before.quota_refusals
        await asyncio.to_thread(operator.suspend, stage.other)
        after, took = await control.until(lambda usage: not usage.of(stage.other).held, FAILS_S)
    finally:
        await asyncio.to_thread(operator.clear_quota, stage.tenant)
    held, left = before.of(stage.other).held, after.of(stage.other).held
    verdict = judge(left > 0 and refusals > 0, held > 0 and refusals > 0)
    if took > CONTRACT_S and verdict is Verdict.HELD:
        verdict = Verdict.INCONCLUSIVE
    return Check(
        "quota/revocation",
        "G7",
        verdict,
        CLAIM,
        f"While the engine refused the quotas, it held {left} of {held} blocks of a tenant "
        f"{took:.2f} s after its suspension; {CONTRACT_S:.0f} s is promised.",
        {"held_before_blocks": held, "held_after_blocks": left, "after_s": round(took, 3)},
        f"The engine counted {refusals} refusals of the quotas.",
        advice="Put what a policy takes away in force before its quotas are looked at.",
    )
