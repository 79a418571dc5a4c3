"""One run of one suite, stopped at the first check that fails as it must."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace

from saltwall_security import run
from saltwall_security.check import Check, Verdict
from saltwall_security.suite import Audit, Suite
from saltwall_security.target import Target

BUDGETS_S: Mapping[str, float] = {
    "collision": 15,
    "eviction": 150,
    "isolation": 150,
    "recovery": 90,
    "scheduler": 10,
    "ticket": 120,
    "timing": 150,
}
BUDGET_S = 60.0
GRACE_S = 120.0
"""How long beyond its budget a suite may take before it counts as hung (seconds)."""


@dataclass(frozen=True)
class Outcome:
    """What a suite said: its checks by id, in order, and how long it took."""

    checks: Mapping[str, Check]
    seconds: float

    def ids(
        self, *verdicts: Verdict, guarantee: str | None = None, deciding: bool = False
    ) -> list[str]:
        """The checks that ended in one of these verdicts.

        Args:
            guarantee: those of this one; None for all.
            deciding: only those that are about any guarantee.
        """
        return [
            check.id
            for check in self.checks.values()
            if check.verdict in verdicts
            and guarantee in (None, check.guarantee)
            and not (deciding and check.guarantee is None)
        ]


async def attempt(suite: Suite, target: Target, seed: str, until: str | None) -> Outcome:
    """Runs a suite.

    A suite that hangs has caught nothing: it ends with the checks that it had made.

    Args:
        until: stop when a check of this guarantee fails; None to run the whole suite.
    """
    made: dict[str, Check] = {}
    began = time.monotonic()
    budget_s = BUDGETS_S.get(suite.name, BUDGET_S)

    async def checks(audit: Audit) -> AsyncIterator[Check]:
        async with aclosing(suite.run(audit)) as each:
            async for check in each:
                made[check.id] = check
                yield check
                if check.verdict is Verdict.FAILED and check.guarantee == until:
                    return

    try:
        async with asyncio.timeout(budget_s + GRACE_S):
            stopping = [replace(suite, run=checks)]
            found = await run.run(target, stopping, budget_s, seed, lambda *_: None)
        for result in found:
            made.update({check.id: check for check in result.checks})
    except TimeoutError:
        hung = f"{suite.name}/hung"
        made[hung] = Check(hung, until, Verdict.INCONCLUSIVE, "It ends", "It did not end in time.")
    return Outcome(made, time.monotonic() - began)
