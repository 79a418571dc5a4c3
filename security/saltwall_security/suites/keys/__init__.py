"""Keys: what a bad one is told, how long that takes, what it opens, and how fast it dies.

Part of G7: what carries a tenant's identity cannot be guessed, and ends when the operator ends it.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence

import httpx

from saltwall_security.check import Check, Verdict
from saltwall_security.client import MODELS
from saltwall_security.ending import Ending
from saltwall_security.errors import AuditError
from saltwall_security.still_served import still_served
from saltwall_security.suite import Audit, Suite
from saltwall_security.suites.keys.foreign import check_models, check_operators, check_requests
from saltwall_security.suites.keys.refusals import check_missing, check_refusals
from saltwall_security.suites.keys.revocation import check_stops, revoke, suspend
from saltwall_security.suites.keys.timing import check_timing
from saltwall_security.target import Operator, Tenant

CLAIMS: Mapping[str, str] = {
    "revocation": "A revoked key stops within a second, with what runs under it",
    "suspension": "A suspended tenant stops within a second, with what runs for it",
    "refusals": "Unknown, malformed, revoked and expired keys get one answer, byte for byte",
    "timing": "The time of a refusal tells nothing about a key",
}
EXPIRES_S = 1.0
ROUND_S = 5.0
"""About what one more act of an operator takes, with the stream that it ends."""
TIMING_PART, ACTS_PART = 0.3, 0.5


async def run(audit: Audit) -> AsyncIterator[Check]:
    """Ends keys, presents them and others, and reaches for what is another tenant's."""
    before = await _working(audit)
    yield await check_operators(audit)
    yield await check_missing(audit)
    if audit.target.tenants[0].key is None:
        for name, claim in CLAIMS.items():
            yield _untested(name, claim, "the target asks for no keys")
    else:
        dead: dict[str, str] = {}
        async for check in _ended(audit, dead):
            yield check
        audit.say("what bad keys are told")
        yield await check_refusals(audit, dead)
        audit.say("how long it takes to tell them")
        yield await check_timing(audit, TIMING_PART)
    audit.say("other tenants' things")
    yield await check_models(audit)
    yield await check_requests(audit)
    # A target may be restarted meanwhile; what bad keys do to good ones is to have them refused.
    verdict, after = await still_served(before, lambda: _working(audit), Verdict.INCONCLUSIVE)
    yield Check(
        "keys/good-keys",
        "G7",
        verdict,
        "Good keys work before and after",
        f"Two tenants' keys were answered {before} before, and {list(after)} after.",
    )


async def _ended(audit: Audit, dead: dict[str, str]) -> AsyncIterator[Check]:
    """Keys that an operator ends; those go into `dead`, by how."""
    operator = audit.target.operator
    if operator is None:
        for name in ("revocation", "suspension"):
            yield _untested(name, CLAIMS[name], "it takes an operator (--home or --operator)")
        return
    audit.say("revoked keys and suspended tenants")
    name = f"audit-keys-{secrets.token_hex(4)}"
    try:
        tenant = await asyncio.to_thread(operator.create_tenant, name)
        _, dead["expired"] = await asyncio.to_thread(operator.create_key, tenant, EXPIRES_S)
    except AuditError as error:
        for each in ("revocation", "suspension"):
            yield _untested(each, CLAIMS[each], f"{error}")
        return
    try:
        for check in await _acts(audit, operator, tenant, dead):
            yield check
    finally:
        await asyncio.to_thread(operator.delete_tenant, tenant)


async def _acts(
    audit: Audit, operator: Operator, tenant: Tenant, dead: dict[str, str]
) -> Sequence[Check]:
    """One of each, and more while half the time lasts."""
    revoked: list[Ending] = []
    suspended: list[Ending] = []
    resumed = True
    until = audit.left_s * (1 - ACTS_PART)
    while not revoked or audit.left_s - 2 * ROUND_S > until:
        done, dead["revoked"] = await revoke(audit, operator, tenant)
        revoked.append(done)
        paused, again = await suspend(audit, operator, tenant)
        suspended.append(paused)
        resumed = resumed and again
    other = (await _status(audit, tenant)) == 200
    return [
        check_stops(
            "revocation",
            CLAIMS["revocation"],
            revoked,
            (other, f"Another key of that tenant {'still works' if other else 'fails, too'}."),
        ),
        check_stops(
            "suspension",
            CLAIMS["suspension"],
            suspended,
            (resumed, f"Resumed, its key {'worked again' if resumed else 'did not work again'}."),
        ),
    ]


async def _working(audit: Audit) -> list[int]:
    return [await _status(audit, tenant) for tenant in audit.target.tenants[:2]]


async def _status(audit: Audit, tenant: Tenant) -> int:
    try:
        return (await audit.client(tenant).send("GET", MODELS)).status
    except httpx.HTTPError:
        return 0


def _untested(name: str, claim: str, why: str) -> Check:
    return Check(f"keys/{name}", "G7", Verdict.NOT_TESTED, claim, f"Not tested: {why}.")


SUITE = Suite(
    "keys",
    "What do bad keys tell, what do they open, and how fast does a revoked one die?",
    ("G7",),
    run,
    share=1.0,
    least_s=10.0,
)
