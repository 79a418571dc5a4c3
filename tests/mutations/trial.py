"""One run of one suite, stopped at the first check that fails."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace

from saltwall_security import run
from saltwall_security.check import Check, Verdict
from saltwall_security.suite import Audit, Suite
from saltwall_security.target import Target

BUDGETS_S: Mapping[str, float] = {"timing": 150, "eviction": 120, "recovery": 90, "ticket": 120}
BUDGET_S = 60.0
GRACE_S = 120.0
"""How long beyond its budget a suite may take before it counts as hung (seconds)."""


@dataclass(frozen=True)
class Outcome:
    """What a suite said: verdicts by check id, in order, and how long it took."""

    verdicts: Mapping[str, str]
    seconds: float

    @property
    def failed(self) -> list[str]:
        """The checks that failed."""
        return [name for name, verdict in self.verdicts.items() if verdict == Verdict.FAILED]


async def attempt(suite: Suite, target: Target, seed: str, *, whole: bool) -> Outcome:
    """Runs a suite; unless the `whole` is wanted, only up to the first check that fails.

    A suite that hangs has caught nothing: it ends with the checks that it had made.
    """
    made: dict[str, str] = {}
    began = time.monotonic()
    budget_s = BUDGETS_S.get(suite.name, BUDGET_S)

    async def checks(audit: Audit) -> AsyncIterator[Check]:
        async with aclosing(suite.run(audit)) as each:
            async for check in each:
                made[check.id] = check.verdict.value
                yield check
                if check.verdict is Verdict.FAILED and not whole:
                    return

    try:
        async with asyncio.timeout(budget_s + GRACE_S):
            stopping = [replace(suite, run=checks)]
            found = await run.run(target, stopping, budget_s, seed, lambda *_: None)
        for result in found:
            made.update({check.id: check.verdict.value for check in result.checks})
    except TimeoutError:
        made[f"{suite.name}/hung"] = Verdict.INCONCLUSIVE.value
    return Outcome(made, time.monotonic() - began)
