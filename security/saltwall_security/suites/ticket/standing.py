"""A ticket dies with the generation and the tenant that it was made for."""

import asyncio
import secrets
from collections.abc import Callable

from saltwall_security.bounded_http import http_client
from saltwall_security.check import Check, Verdict
from saltwall_security.client import TIMEOUT_S
from saltwall_security.ending import CONTRACT_S, FAILS_S, OK, Ending, ending, judged, started
from saltwall_security.recording import Recorded
from saltwall_security.running import Running
from saltwall_security.suite import Audit
from saltwall_security.suites.ticket.shots import Shot, fire
from saltwall_security.suites.ticket.spied import Spied
from saltwall_security.target import Operator, Tenant

CLAIM = "A revoked generation's or tenant's ticket is refused, and what runs on it ends"


async def check_standing(audit: Audit, operator: Operator, spied: Spied) -> Check:
    """A new tenant's requests, straight to the engine, before and after what ends them."""
    name = f"audit-ticket-{secrets.token_hex(4)}"
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


async def _ended(
    audit: Audit, spied: Spied, tenant: Tenant, act: Callable[[], None]
) -> tuple[int, Ending]:
    """What a genuine request was answered before the act, and what became of both by it."""
    async with http_client(TIMEOUT_S) as http:

        async def begin(tokens: int) -> Running:
            """On a genuine request, at the engine's own port."""
            fields = {"max_tokens": tokens, "ignore_eos": True, "stream": True}
            genuine = await spied.capture(tenant, audit.words(5), **fields)
            url = f"{audit.target.engine_url}{genuine.path}"
            headers = list(genuine.headers)
            return Running(http.stream("POST", url, content=genuine.body, headers=headers))

        # Served once, the engine knows the tenant: what goes past the gateways waits for no policy.
        request = await spied.record(tenant, audit.words(5))
        running = await started(begin)
        try:
            before = await _status(audit, request)
            return before, await ending(running, act, lambda _: _status(audit, request))
        finally:
            await running.stop()


async def _status(audit: Audit, request: Recorded) -> int:
    hits = await fire(audit.target.engine_url or "", [Shot("replayed", request)])
    return hits[0].reply.status or 0


def _judged(rotated: tuple[int, Ending], deleted: tuple[int, Ending]) -> Check:
    (before, one), (later, other) = rotated, deleted
    verdict = judged([one, other], before == later == OK)
    return Check(
        "ticket/standing",
        "G7",
        verdict,
        CLAIM,
        f"After a rotation without grace the old generation's ticket was {_dead(one)}, after "
        f"its tenant's deletion the new one's was {_dead(other)}; {CONTRACT_S:.0f} s is "
        "promised.",
        {
            "rotated_refused_after_s": _rounded(one.refused_s),
            "rotated_running_ended_after_s": _rounded(one.ended_s),
            "deleted_refused_after_s": _rounded(other.refused_s),
            "deleted_running_ended_after_s": _rounded(other.ended_s),
        },
        f"Before that the same requests were answered {before} and {later}, and "
        f"{one.ran + other.ran} of 2 long ones ran.",
        advice="Have engines check tenant and generation of each ticket against a pushed policy, "
        "and abort what runs on those that it takes away."
        if verdict is Verdict.FAILED
        else "",
    )


def _dead(end: Ending) -> str:
    def told(seconds: float | None, what: str) -> str:
        return f"still {what} after {FAILS_S:.0f} s" if seconds is None else f"in {seconds:.2f} s"

    running = f"its running request ended {told(end.ended_s, 'ran')}"
    return f"refused {told(end.refused_s, 'good')} and {running if end.ran else 'nothing ran'}"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
