"""G4, G5, G6, G11 and more: any vLLM scheduler class, attacked on a bench without a model.

The control is stock vLLM's scheduler, which gives in to the same attack, or one within the attack.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from saltwall_security.bench.attacks.catalogue import CATALOGUE, Entry
from saltwall_security.bench.process import Benches, BenchFailed, Examination
from saltwall_security.bench.worker import STOCK
from saltwall_security.check import Check, Verdict, judge
from saltwall_security.errors import AuditError
from saltwall_security.suite import Audit, Suite
from saltwall_security.target import Access

MODES = {"synchronously": False, "asynchronously": True}
"""vLLM schedules either way."""
ATTACK_S = 60.0
"""The longest that one attack may take: a scheduler that loops must not hold up the audit."""


class Seen:
    """What one attack saw of the target in all modes and rounds, and on stock vLLM."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sightings: list[dict[str, Any]] = []
        self.stock: list[dict[str, Any]] = []
        self.failure: str | None = None

    @property
    def leaks(self) -> bool:
        """Whether the attack has seen what must not be, which no later round undoes."""
        return any(sighting["leak"] for sighting in self.sightings)

    def check(self) -> Check:
        """The verdict."""
        entry: Entry = CATALOGUE[self.name]
        applies = [sighting for sighting in self.sightings if sighting["applies"]]
        if not applies:
            verdict = Verdict.NOT_TESTED if self.failure is None else Verdict.INCONCLUSIVE
            said = self.failure or "the scheduler has no notion of what is attacked"
            return self._check(entry, verdict, f"Not seen: {said}.", {})
        worst = next((s for s in applies if s["leak"]), applies[-1])
        stock_leaks = any(sighting["leak"] for sighting in self.stock)
        staged = all(s["control"] is not False for s in applies)
        control = staged and (stock_leaks or all(s["control"] for s in applies))
        verdict = judge(bool(worst["leak"]), control and self.failure is None)
        seen = f"Over {len(applies)} runs the attack at worst {worst['seen']}."
        if self.failure is not None:
            seen += f" One run failed: {self.failure}."
        figures = {
            **worst["figures"],
            "runs": len(applies),
            "leaking_runs": sum(sighting["leak"] for sighting in applies),
        }
        return self._check(entry, verdict, seen, figures)

    def _check(
        self, entry: Entry, verdict: Verdict, seen: str, figures: dict[str, float | int]
    ) -> Check:
        stock = next((s for s in self.stock if s["leak"]), None)
        return Check(
            f"scheduler/{self.name}",
            entry.guarantee,
            verdict,
            entry.claim,
            seen,
            figures,
            control=f"On stock vLLM it {stock['seen']}." if stock else entry.control or None,
            advice=entry.advice,
        )


async def run(audit: Audit) -> AsyncIterator[Check]:
    """Every attack in both modes on both schedulers, then on the target's again as time allows.

    What fails is said at once; what holds, when all rounds have been made.
    """
    target = audit.target.scheduler or STOCK
    found = {name: Seen(name) for name in CATALOGUE}
    async with Benches({"target": target, "stock": STOCK}, audit.seed) as examined:
        try:
            version = await examined["target"].version()
        except BenchFailed as failure:
            raise AuditError(
                f"{target} could not be built: {failure}. Install vLLM and the scheduler's package "
                "beside the auditor, in one environment"
            ) from None
        audit.say(f"{target} is built, on vLLM {version}")
        stock = asyncio.create_task(_controls(audit, examined["stock"], found))
        try:
            number, took = 0, 0.0
            while number == 0 or audit.left_s > 2 * took:
                began = time.monotonic()
                for name in list(found):
                    await _attack(audit, examined["target"], found[name], number)
                    if found[name].leaks:
                        yield found.pop(name).check()
                took = time.monotonic() - began
                number += 1
                audit.say(f"round {number} has been made")
            await stock
        finally:
            stock.cancel()
    for seen in found.values():
        yield seen.check()


async def _attack(audit: Audit, examined: Examination, seen: Seen, number: int) -> None:
    """One attack of one round, in both modes; not again where it has failed to end."""
    for mode, asynchronous in MODES.items():
        if seen.failure is not None:
            return
        try:
            seen.sightings.append(
                await examined.ask(
                    "attack",
                    ATTACK_S,
                    name=seen.name,
                    asynchronous=asynchronous,
                    seed=f"{audit.seed}/{seen.name}/{number}",
                )
            )
        except BenchFailed as failure:
            seen.failure = f"{mode}, {failure}"


async def _controls(audit: Audit, examined: Examination, found: dict[str, Seen]) -> None:
    """The same attacks on stock vLLM; where they cannot be made, there is no control."""
    for name, seen in list(found.items()):
        for asynchronous in MODES.values():
            try:
                seen.stock.append(
                    await examined.ask(
                        "attack",
                        ATTACK_S,
                        name=name,
                        asynchronous=asynchronous,
                        seed=f"{audit.seed}/{name}/0",
                    )
                )
            except BenchFailed:
                return


SUITE = Suite(
    "scheduler",
    "Floods, ceilings, preemption and turns on the scheduler itself, without a model",
    ("G1", "G4", "G5", "G6", "G7", "G10", "G11"),
    run,
    needs=frozenset({Access.SCHEDULER}),
    share=1.5,
    least_s=10.0,
    offline=True,
)
