"""Ceilings: what the engine reports after each change, beside what the tenant can really hold."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from saltwall_security.check import Check, Verdict, judge
from saltwall_security.suites.quota.stage import LIVE_WITHIN_S, Prompt, Stage

MORE = 1.5
"""How much more than its ceiling a tenant tries to hold."""
ENOUGH = 0.75
"""Which part of a higher ceiling must be reached: requests that run take some for themselves, and
half of it or less was allowed before."""
CLAIMS = {
    "ceiling": "A tenant never holds more than its ceiling, after whatever change",
    "reported": "The quota that is reported is the one that is enforced, after every change",
}
ADVICE = {
    "ceiling": "Charge every block that a tenant pins or has cached against its ceiling, and evict "
    "its own idle blocks when the ceiling is lowered.",
    "reported": "Let one place decide and report; after a change compare `saltwall quota show` "
    "with what the engine says, and look at the gateway's log.",
}


@dataclass(frozen=True)
class Change:
    """An operator's act on the tenant's quota, and what must be in force after it (blocks)."""

    name: str
    act: Callable[[], None]
    reserve: int
    ceiling: int | None
    rises: bool = False


@dataclass(frozen=True)
class Seen:
    """What came of a change; blocks.

    Args:
        live_s: until the engine reported it.
        cached: of its own prompts, found cached afterwards; where the change lowers what it may
            hold, the highest of two counts, before and after it sent new ones.
        most: that the engine said it held, from then on.
        tried: of new prompts, sent after the change.
        taken: by other tenants meanwhile.
    """

    change: Change
    reserve: int
    ceiling: int | None
    live_s: float
    cached: int
    most: int
    tried: int
    taken: int

    @property
    def reported(self) -> bool:
        """Whether the engine reports what was set."""
        return (self.reserve, self.ceiling) == (self.change.reserve, self.change.ceiling)

    @property
    def above(self) -> bool:
        """Whether the tenant held more than it may."""
        limit = self.change.ceiling
        return limit is not None and max(self.cached, self.most) > limit


def changes(stage: Stage) -> list[Change]:
    """Every kind of change, each to another number than the one before; what goes wrong most
    easily comes first.
    """
    unit, tenant, operator = stage.unit, stage.tenant, stage.operator

    def to(**options: str | bool) -> Callable[[], None]:
        return lambda: operator.set_quota(tenant, **options)

    return [
        Change("set", to(ceiling=str(2 * unit)), 0, 2 * unit),
        Change("deleted", lambda: operator.clear_quota(tenant), 0, None, rises=True),
        Change("set again", to(ceiling=str(unit + 3)), 0, unit + 3),
        Change("raised", to(ceiling=str(3 * unit)), 0, 3 * unit, rises=True),
        Change("lowered", to(ceiling=str(unit + 2)), 0, unit + 2),
        Change("strict", to(reserve=str(2 * unit), strict=True), 2 * unit, 2 * unit, rises=True),
        Change("unbounded", to(reserve="0", ceiling="none", strict=False), 0, None, rises=True),
    ]


async def check_limits(stage: Stage) -> AsyncIterator[Check]:
    """Tries the tenant without a quota, and then after each change."""
    most = 3 * stage.unit
    sent: list[Prompt] = []
    table = [await _after(stage, Change("none yet", lambda: None, 0, None), most, sent)]
    unmade = changes(stage)
    while unmade and stage.audit.left_s > 0:
        stage.audit.say(f"quota {unmade[0].name}")
        table.append(await _after(stage, unmade.pop(0), most, sent))
    not_made = ", ".join(change.name for change in unmade)
    yield _ceiling(table, most, not_made)
    yield _reported(table, most, not_made)


async def _after(stage: Stage, change: Change, most: int, sent: list[Prompt]) -> Seen:
    """Makes a change, and tries to hold more than it allows; `sent` are the prompts before it."""
    suffered = (await stage.control.usage()).of(stage.tenant).evictions_suffered
    await asyncio.to_thread(change.act)
    usage, took = await stage.live(change.reserve, change.ceiling)
    reported = usage.of(stage.tenant)
    limit = change.ceiling
    cached = 0
    if limit is not None and not change.rises:
        await stage.control.until(
            lambda now: now.of(stage.tenant).held <= limit, LIVE_WITHIN_S
        )  # what is above a lowered ceiling goes a slice at a time
        cached = await stage.cached(stage.tenant, sent)
    wanted = most + stage.unit if limit is None else round(MORE * limit)
    watch = asyncio.create_task(_watch(stage))
    try:
        sent[:] = await stage.fill(stage.tenant, wanted, max(2, stage.unit // 2) + 0.5)
        cached = max(cached, await stage.cached(stage.tenant, sent))
    finally:
        watch.cancel()
        samples = (await asyncio.gather(watch, return_exceptions=True))[0]
    account = (await stage.control.usage()).of(stage.tenant)
    return Seen(
        change,
        reported.reserve,
        reported.ceiling,
        took,
        cached,
        max([account.held, *(samples if isinstance(samples, list) else [])]),
        sum(prompt.blocks for prompt in sent),
        account.evictions_suffered - suffered,
    )


def _ceiling(table: Sequence[Seen], most: int, not_made: str) -> Check:
    wrong = [seen for seen in table if seen.above]
    bounded = [seen for seen in table if seen.change.ceiling is not None]
    if wrong:
        said = "; ".join(
            f"{seen.change.name}: {max(seen.cached, seen.most)} blocks under a ceiling of "
            f"{seen.change.ceiling}"
            for seen in wrong
        )
    else:
        said = (
            f"After {len(bounded)} changes it never held more than its ceiling, though it sent "
            f"{MORE:g} times as much.{_untried(not_made)}"
        )
    return Check(
        "quota/ceiling",
        "G4",
        judge(bool(wrong), table[0].cached > most and not not_made),
        CLAIMS["ceiling"],
        said,
        {"changes": len(bounded), "above": len(wrong)},
        f"Without a ceiling {table[0].cached} blocks of its prompts were cached at once "
        f"({most} is the highest ceiling tried).",
        table=[_row(seen) for seen in table],
        advice=ADVICE["ceiling"],
    )


def _reported(table: Sequence[Seen], most: int, not_made: str) -> Check:
    wrong = [seen for seen in table if not seen.reported]
    short = [seen for seen in table if _short(seen, most)]
    fewer = [seen for seen in short if not seen.taken]
    if wrong:
        said = "; ".join(
            f"{seen.change.name}: reports {seen.reserve} reserved and a ceiling of {seen.ceiling}, "
            f"not {seen.change.reserve} and {seen.change.ceiling}, {seen.live_s:.1f} s later"
            for seen in wrong
        )
    elif fewer:
        said = "; ".join(
            f"{seen.change.name}: reports a ceiling of {seen.ceiling}, but kept {seen.cached} of "
            f"{seen.tried} blocks"
            for seen in fewer
        )
    else:
        said = (
            f"{len(table) - 1} changes were reported within "
            f"{max(seen.live_s for seen in table):.2f} s, and measured as reported."
            f"{_untried(not_made)}"
        )
    verdict = judge(bool(wrong or fewer), table[0].cached > most and not not_made)
    if short and verdict is Verdict.HELD:
        verdict = Verdict.INCONCLUSIVE
        said += " Others took some of its blocks meanwhile, so that the limit was not reached."
    return Check(
        "quota/reported",
        "G4",
        verdict,
        CLAIMS["reported"],
        said,
        {
            "changes": len(table) - 1,
            "misreported": len(wrong),
            "live_after_most_s": round(max(seen.live_s for seen in table), 3),
        },
        f"Without a ceiling {table[0].cached} blocks of its prompts were cached at once.",
        advice=ADVICE["reported"],
    )


def _short(seen: Seen, most: int) -> bool:
    """Whether less was kept than a higher ceiling allows: the lower one may be in force still."""
    if seen.change.ceiling is None:
        return seen.change.rises and seen.cached <= most
    return seen.change.rises and seen.cached < ENOUGH * seen.change.ceiling


def _untried(not_made: str) -> str:
    return f" There was no time for more: {not_made}." if not_made else ""


async def _watch(stage: Stage) -> list[int]:
    """What the engine says that the tenant holds, as often as it can be asked, until cancelled."""
    samples = []
    try:
        while True:
            samples.append((await stage.control.usage()).of(stage.tenant).held)
            await asyncio.sleep(0.1)  # between looks at a running system
    except asyncio.CancelledError:
        return samples


def _row(seen: Seen) -> dict[str, float | int | str | None]:
    return {
        "change": seen.change.name,
        "set ceiling": seen.change.ceiling,
        "reported ceiling": seen.ceiling,
        "reported after (s)": round(seen.live_s, 2),
        "sent (blocks)": seen.tried,
        "cached (blocks)": seen.cached,
        "held at most (blocks)": seen.most,
    }
