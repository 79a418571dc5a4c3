"""Reserves, and requests that no quota can ever hold."""

import asyncio
import re
from collections.abc import AsyncIterator

import httpx

from saltwall_security.check import Check, Verdict, judge
from saltwall_security.client import Answer
from saltwall_security.errors import AuditError
from saltwall_security.suites.quota.stage import Stage

RESERVE = "What a tenant has cached within its reserve stays, whatever another sends"
FLOOD_AT_ONCE = 4
FLOOD_PART = 0.5
"""Of the suite's time: a pool that is not full by then leaves the rest to what else is tried."""
MISFIT_WITHIN_S = 30.0
"""How long a refusal may take before it counts as waiting for ever."""


async def check_misfit(stage: Stage) -> Check:
    """What can never fit the ceiling is refused at once, with the numbers; what fits is served."""
    limit = 2 * stage.unit
    await asyncio.to_thread(stage.operator.set_quota, stage.tenant, reserve="0", ceiling=str(limit))
    await stage.live(0, limit)
    fits = await _answered(stage, limit / 2, max_tokens=1)
    tries = {
        "prompt": await _answered(stage, limit + 2, max_tokens=1),
        "answer": await _answered(
            stage, limit / 2, max_tokens=limit * stage.block_tokens, ignore_eos=True
        ),
    }
    wrong = {name: _wrong(answer, limit) for name, answer in tries.items()}
    bad = {name: why for name, why in wrong.items() if why}
    said = "; ".join(f"{name}: {why}" for name, why in bad.items())
    return Check(
        "quota/misfit",
        "G4",
        judge(bool(bad), fits is not None and fits.ok),
        "A request that can never fit its tenant's ceiling is refused at once, with the numbers",
        said or "Too long a prompt and too long an answer were refused, with the ceiling's number.",
        {f"{name}_status": answer.status if answer else None for name, answer in tries.items()},
        f"Half a ceiling's prompt was answered with {fits.status if fits else 'nothing'}.",
        advice="Compare a request's most blocks with its tenant's ceiling before it is queued.",
    )


async def _answered(stage: Stage, blocks: float, **fields: object) -> Answer | None:
    client = stage.audit.client(stage.tenant)
    path, prompt = stage.probe.request(stage.text(blocks))
    try:
        async with asyncio.timeout(MISFIT_WITHIN_S):
            return await client.ask(path, {**prompt, **fields})
    except (TimeoutError, httpx.HTTPError):
        return None


def _wrong(answer: Answer | None, limit: int) -> str:
    if answer is None:
        return f"no answer in {MISFIT_WITHIN_S:.0f} s"
    if answer.ok:
        return "it was served"
    if answer.status >= 500:
        return f"refused with {answer.status}, as if it were the server's fault"
    numbers = re.findall(r"\d+", str(answer.error.get("message")))
    return "" if str(limit) in numbers else f"the refusal does not say {limit} blocks"


async def check_promises(stage: Stage) -> AsyncIterator[Check]:
    """A reserve under another tenant's flood; and reserves that cannot all be kept."""
    reserve = 2 * stage.unit
    tenant, other, operator = stage.tenant, stage.other, stage.operator
    await asyncio.to_thread(operator.set_quota, tenant, reserve=str(reserve), ceiling="none")
    await stage.live(reserve, None)
    yield await _oversold(stage, reserve)
    each = max(2, stage.unit // 2) + 0.5
    # One at a time: they must not come to more than the reserve.
    mine = await stage.fill(tenant, round(0.6 * reserve), each, at_once=1)
    theirs = await stage.fill(other, reserve, each)
    before = await stage.cached(tenant, mine), await stage.cached(other, theirs)
    sent, part = 0, max(each, min(stage.pool / 8, 40.0))
    while sent < stage.pool and stage.audit.left_s > (1 - FLOOD_PART) * stage.audit.seconds:
        size = min(part, max(each, (stage.pool - sent) / FLOOD_AT_ONCE + 0.5))
        sent += sum(p.blocks for p in await stage.fill(other, 1, size, FLOOD_AT_ONCE))
    after = await stage.cached(tenant, mine), await stage.cached(other, theirs)
    yield Check(
        "quota/reserve",
        "G4",
        judge(after[0] < min(before[0], reserve), before[0] > 0 and after[1] < before[1]),
        RESERVE,
        f"With {reserve} blocks reserved, {before[0]} cached ones were {after[0]} after a flood of "
        f"{sent} blocks into a pool of {stage.pool}."
        + ("" if sent >= stage.pool else " There was no time to fill it."),
        {"reserve_blocks": reserve, "flood_blocks": sent, "kept_blocks": after[0]},
        f"Of the other tenant's own {before[1]} blocks, without a reserve, {after[1]} were left.",
        advice="Take no idle block of a tenant that holds no more than its reserve.",
    )


async def _oversold(stage: Stage, reserve: int) -> Check:
    asked = stage.pool - reserve + 1
    claim = "Reserves that add up to more than the engine has are refused, with the numbers"
    try:
        await asyncio.to_thread(stage.operator.set_quota, stage.other, reserve=str(asked))
    except AuditError as error:
        said = str(error)
        verdict = _refusal(said, {str(stage.pool), str(stage.pool + 1), str(asked)})
        if (await stage.control.usage()).of(stage.other).reserve:
            verdict = Verdict.FAILED
        seen = f"{reserve} and {asked} blocks of {stage.pool} were not accepted: {said}"
    else:
        verdict = Verdict.FAILED
        seen = f"{reserve} and {asked} blocks of {stage.pool} were both promised."
        await asyncio.to_thread(stage.operator.clear_quota, stage.other)
    return Check(
        "quota/oversold",
        "G4",
        verdict,
        claim,
        seen,
        {"pool_blocks": stage.pool, "asked_blocks": reserve + asked},
        f"A reserve of {reserve} blocks alone was accepted and reported.",
        advice="Add up all reserves, in each engine's blocks, before one is stored.",
    )


def _refusal(said: str, numbers: set[str]) -> Verdict:
    """A command can fail for other reasons: a refusal has the numbers, or is about reserves."""
    if numbers & set(re.findall(r"\d+", said)):
        return Verdict.HELD
    return Verdict.FAILED if "reserve" in said else Verdict.INCONCLUSIVE
