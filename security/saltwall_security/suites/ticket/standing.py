"""A ticket dies with the generation and the tenant that it was made for."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from saltwall_security.check import Check, Verdict, judge
from saltwall_security.client import TIMEOUT_S
from saltwall_security.recording import Recorded
from saltwall_security.running import Running
from saltwall_security.suite import Audit
from saltwall_security.suites.ticket.shots import Shot, fire
from saltwall_security.suites.ticket.spied import Spied
from saltwall_security.target import Operator, Tenant
from saltwall_security.trust import system_trust

CONTRACT_S, FAILS_S = 1.0, 5.0
"""Promised, and where the promise counts as broken: the machine may be busy."""
POLL_S = 0.02
LONG = (3500, 1500, 500)
"""Tokens to generate, as many as the model's context takes."""
CLAIM = "A revoked generation's or tenant's ticket is refused, and what runs on it ends"
OK = 200


@dataclass(frozen=True)
class End:
    """What became of a generation or a tenant's requests after an operator's act (seconds).

    Args:
        before: the answer to a genuine request before it.
        refused_s: until the same request was refused; None if it never was.
        ended_s: until a running one had ended; None if it never had.
        ran: it was running until then.
    """

    before: int
    refused_s: float | None
    ended_s: float | None
    ran: bool


async def check_standing(audit: Audit, operator: Operator, spied: Spied) -> Check:
    """A new tenant's requests, straight to the engine, before and after what ends them."""
    name = f"audit-ticket-{audit.rng.randrange(16**8):08x}"
    tenant = await asyncio.to_thread(operator.create_tenant, name)
    left = True
    try:
        rotated = await _ended(audit, spied, tenant, lambda: operator.rotate(tenant, 0))
        left = False
        deleted = await _ended(audit, spied, tenant, lambda: operator.delete_tenant(tenant))
        return _judged(rotated, deleted)
    finally:
        if left:
            await asyncio.to_thread(operator.delete_tenant, tenant)


async def _ended(audit: Audit, spied: Spied, tenant: Tenant, act: Callable[[], None]) -> End:
    request = await spied.record(tenant, audit.words(5))
    before = await _status(audit, request)
    async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False, verify=system_trust()) as http:
        running = await _started(audit, spied, tenant, http)
        try:
            ran = running.runs
            await asyncio.to_thread(act)
            done = time.monotonic()
            refused = await _refused(audit, request, done)
            ended = None
            if await running.ended(max(0.0, FAILS_S - (time.monotonic() - done))):
                ended = max(0.0, (running.ended_at or done) - done)
            return End(before, refused, ended, ran and not running.finished)
        finally:
            await running.stop()


async def _started(audit: Audit, spied: Spied, tenant: Tenant, http: httpx.AsyncClient) -> Running:
    """A long generation on a genuine request, at the engine's own port."""
    for tokens in LONG:
        fields = {"max_tokens": tokens, "ignore_eos": True, "stream": True}
        genuine = await spied.capture(tenant, audit.words(5), **fields)
        url = f"{audit.target.engine_url}{genuine.path}"
        running = Running(
            http.stream("POST", url, content=genuine.body, headers=list(genuine.headers))
        )
        if await running.began(30):
            break
    return running


async def _refused(audit: Audit, request: Recorded, since: float) -> float | None:
    while time.monotonic() - since < FAILS_S:
        if await _status(audit, request) in (401, 403):
            return time.monotonic() - since
        await asyncio.sleep(POLL_S)  # between polls of a running system
    return None


async def _status(audit: Audit, request: Recorded) -> int:
    hits = await fire(audit.target.engine_url or "", [Shot("replayed", request)])
    return hits[0].reply.status or 0


def _judged(rotated: End, deleted: End) -> Check:
    both = (rotated, deleted)
    late = any(each.refused_s is None or (each.ran and each.ended_s is None) for each in both)
    verdict = judge(late, all(each.before == OK and each.ran for each in both))
    return Check(
        "ticket/standing",
        "G7",
        verdict,
        CLAIM,
        f"After a rotation without grace the old generation's ticket was {_dead(rotated)}, after "
        f"its tenant's deletion the new one's was {_dead(deleted)}; {CONTRACT_S:.0f} s is "
        "promised.",
        {
            "rotated_refused_after_s": _rounded(rotated.refused_s),
            "rotated_running_ended_after_s": _rounded(rotated.ended_s),
            "deleted_refused_after_s": _rounded(deleted.refused_s),
            "deleted_running_ended_after_s": _rounded(deleted.ended_s),
        },
        f"Before that the same requests were answered {rotated.before} and {deleted.before}, and "
        f"{sum(each.ran for each in both)} of 2 long ones ran.",
        advice="Have engines check tenant and generation of each ticket against a pushed policy, "
        "and abort what runs on those that it takes away."
        if verdict is Verdict.FAILED
        else "",
    )


def _dead(end: End) -> str:
    def told(seconds: float | None, what: str) -> str:
        return f"still {what} after {FAILS_S:.0f} s" if seconds is None else f"in {seconds:.2f} s"

    running = f"its running request ended {told(end.ended_s, 'ran')}"
    return f"refused {told(end.refused_s, 'good')} and {running if end.ran else 'nothing ran'}"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
