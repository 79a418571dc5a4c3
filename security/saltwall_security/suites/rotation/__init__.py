"""Do rotation, suspension and deletion put old KV out of reach, and erase it?"""

import asyncio
import secrets
from collections.abc import AsyncIterator

from saltwall_security.check import Check
from saltwall_security.errors import AuditError
from saltwall_security.prober import Prober
from saltwall_security.suite import Audit, Suite
from saltwall_security.suites.rotation.erasure import check_deletion
from saltwall_security.suites.rotation.reach import CLAIMS, Reach, skipped
from saltwall_security.target import Access


async def run(audit: Audit) -> AsyncIterator[Check]:
    """Yields a check for each act of an operator, on a tenant that is deleted by the last."""
    operator = audit.target.operator
    if operator is None:
        raise AuditError("somebody must be able to rotate salts")
    name = f"audit-rotation-{secrets.token_hex(3)}"
    tenant = await asyncio.to_thread(operator.create_tenant, name)
    probe = Prober()
    made = []
    try:
        async for check in Reach(audit, operator, probe, tenant).checks():
            made.append(check.id.partition("/")[2])
            yield check
    except AuditError as error:
        for check in skipped([claim for claim in CLAIMS if claim not in made], str(error)):
            yield check
    async for check in check_deletion(audit, operator, probe, tenant):
        yield check


SUITE = Suite(
    "rotation",
    "Is old KV out of reach after rotation, suspension and deletion, and erased?",
    ("G9",),
    run,
    needs=frozenset({Access.OPERATOR}),
    share=1.0,
    least_s=40.0,
)
