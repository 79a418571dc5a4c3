"""Do quotas outlast the engine? It is restarted, and then looked at and tried as before."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from saltwall_security.check import Check, Verdict, judge
from saltwall_security.engine_control import Account, Usage, check_alone
from saltwall_security.errors import AuditError
from saltwall_security.prober import Refused
from saltwall_security.suite import Audit, Suite
from saltwall_security.suites.quota.stage import Prompt, Stage, staged
from saltwall_security.target import Access, Tenant

CLAIM = "A restarted engine reports and enforces the quotas that are stored"
RESTARTED_S = 300.0
"""How long the command that restarts it may take."""
WITHIN_S = 600.0
"""How long an engine may take until it serves again."""
PROMISED_S = 1.0
"""How long an engine may serve until it has the quotas that are stored."""
POLL_S = 0.5
MORE = 1.5
"""How much more than the ceiling is sent."""


async def run(audit: Audit) -> AsyncIterator[Check]:
    """Yields the one check."""
    operator, restart = audit.target.operator, audit.target.restart
    if operator is None or restart is None:
        raise AuditError("somebody must be able to set quotas, and to restart the engine")
    await check_alone(operator)
    async with staged(audit, operator) as at:
        yield await _check(at, restart)


async def _check(stage: Stage, restart: Callable[[], None]) -> Check:
    bounded, free, operator = stage.tenant, stage.other, stage.operator
    reserve, ceiling = stage.unit, 2 * stage.unit
    await asyncio.to_thread(operator.set_quota, bounded, reserve=str(reserve), ceiling=str(ceiling))
    await asyncio.to_thread(operator.set_quota, free, ceiling=str(reserve))
    await asyncio.to_thread(operator.clear_quota, free)
    await stage.live(reserve, ceiling)
    first = (await stage.fill(bounded, 1, _size(stage), at_once=1))[0]
    before = await stage.cached(bounded, [first])
    stage.audit.say("restarting the engine")
    await asyncio.to_thread(restart)
    away_s = await _until_empty(stage, first)
    if away_s is None or not before:
        seen = f"For {WITHIN_S:.0f} s no request was served by an engine with an empty cache."
        return Check("restart/quotas", "G4", Verdict.INCONCLUSIVE, CLAIM, seen)
    usage, late_s = await _live(stage, reserve, ceiling)
    held, unbounded = await _held(stage, bounded, ceiling), await _held(stage, free, ceiling)
    told, other = usage.of(bounded), usage.of(free)
    right = _is(told, reserve, ceiling) and _is(other, 0, None) and late_s <= PROMISED_S
    return Check(
        "restart/quotas",
        "G4",
        judge(not right or held > ceiling, unbounded > ceiling),
        CLAIM,
        f"It served {away_s:.0f} s after the restart was asked for. {late_s:.1f} s after that it "
        f"reported {_told(told)} for a tenant with {reserve} blocks reserved and a ceiling of "
        f"{ceiling}, which then held {held} at most of {MORE:g} times as many, and {_told(other)} "
        f"where a ceiling had been deleted; {PROMISED_S:g} s is promised.",
        {
            "away_s": round(away_s, 1),
            "late_s": round(late_s, 1),
            "reported_ceiling_blocks": told.ceiling,
            "held_blocks": held,
            "held_without_ceiling_blocks": unbounded,
        },
        f"What was cached before it ({before} blocks) was gone, and the tenant without a ceiling "
        f"held {unbounded} blocks.",
        advice="Push all stored quotas to an engine that comes up, before it serves.",
    )


def _size(stage: Stage) -> float:
    return max(2, stage.unit // 2) + 0.5


async def _until_empty(stage: Stage, prompt: Prompt) -> float | None:
    """When a prompt that was cached is served and was not (seconds from now); None for never."""
    client, began = stage.audit.client(stage.tenant), time.monotonic()
    while (took := time.monotonic() - began) < WITHIN_S:
        try:
            answer = await stage.probe(client, prompt.text)
        except Refused:
            pass  # what comes up refuses, or does not answer
        else:
            if answer.cached_tokens == 0:
                return took
        await asyncio.sleep(POLL_S)  # between polls of an engine that starts
    return None


async def _live(stage: Stage, reserve: int, ceiling: int) -> tuple[Usage, float]:
    """What the engine reports, and for how long it served before (s): not at all if it is right
    when it is first asked, however long that takes."""
    usage = await stage.control.usage()
    if _is(usage.of(stage.tenant), reserve, ceiling):
        return usage, 0.0
    return await stage.live(reserve, ceiling)


async def _held(stage: Stage, tenant: Tenant, ceiling: int) -> int:
    """The most blocks that a tenant holds after sending more than a ceiling."""
    sent = await stage.fill(tenant, round(MORE * ceiling), _size(stage))
    told = (await stage.control.usage()).of(tenant).held
    return max(told, await stage.cached(tenant, sent))


def _is(account: Account, reserve: int, ceiling: int | None) -> bool:
    return (account.reserve, account.ceiling) == (reserve, ceiling)


def _told(account: Account) -> str:
    ceiling = "no ceiling" if account.ceiling is None else f"a ceiling of {account.ceiling}"
    return f"{account.reserve} reserved and {ceiling}"


SUITE = Suite(
    "restart",
    "Do quotas outlast a restart of the engine?",
    ("G4",),
    run,
    needs=frozenset({Access.OPERATOR, Access.CONTROL, Access.RESTART}),
    least_s=60.0,
    patience_s=RESTARTED_S + WITHIN_S,
)
