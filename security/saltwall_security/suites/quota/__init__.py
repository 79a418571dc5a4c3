"""Is the quota that is reported the one that is enforced, and is every block given back?

Nothing here goes on for as long as there is time: it ends when all changes have been tried.
"""

from collections.abc import AsyncIterator

from saltwall_security.check import Check, Verdict
from saltwall_security.engine_control import check_alone
from saltwall_security.errors import AuditError
from saltwall_security.suite import Audit, Suite
from saltwall_security.suites.quota.books import check_books
from saltwall_security.suites.quota.limits import CLAIMS, check_limits
from saltwall_security.suites.quota.promises import RESERVE, check_misfit, check_promises
from saltwall_security.suites.quota.revocation import check_revocation
from saltwall_security.suites.quota.stage import staged
from saltwall_security.target import Access


async def run(audit: Audit) -> AsyncIterator[Check]:
    """Yields a check for each promise."""
    operator = audit.target.operator
    if operator is None:
        raise AuditError("somebody must be able to set quotas")
    await check_alone(operator)
    async with staged(audit, operator) as at:
        audit.say("reserves, under a flood")
        try:
            async for check in check_promises(at):
                yield check
        except AuditError as error:
            yield _not_told("reserve", RESERVE, error)
        yield await check_misfit(at)
        audit.say("requests that end in every way")
        yield await check_books(at)
        audit.say("a suspension, with quotas that the engine refuses")
        yield await check_revocation(at)
        try:
            async for check in check_limits(at):
                yield check
        except AuditError as error:
            for name, claim in CLAIMS.items():
                yield _not_told(name, claim, error)


def _not_told(name: str, claim: str, error: AuditError) -> Check:
    return Check(f"quota/{name}", "G4", Verdict.INCONCLUSIVE, claim, f"Not told: {error}.")


SUITE = Suite(
    "quota",
    "Do quotas hold as reported, after every change, and do the books close?",
    ("G4", "G7", "G11"),
    run,
    needs=frozenset({Access.OPERATOR, Access.CONTROL}),
    share=1.0,
    least_s=75.0,
)
