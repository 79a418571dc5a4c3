"""Works through the mutants: first without an engine, then on as few boots as will do."""

import importlib
import os
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import bare
from live import Live, booted
from mutants.mutant import Mutant
from mutants.switch import VARIABLE, Switch
from results import Result, Results
from trial import BUDGET_S, BUDGETS_S, Outcome, attempt

from saltwall_security.check import Verdict
from saltwall_security.errors import AuditError
from saltwall_security.registry import MODULES
from saltwall_security.suite import Suite

UNREACHED = "its defective code was never run"

Examine = Callable[[Suite, str | None], Awaitable[Outcome]]
"""Runs a suite, whole or until a check of a guarantee fails."""


class Session:
    """One run of the driver. `unusable`: suites that fail without any defect, and how."""

    def __init__(self, mutants: Sequence[Mutant], results: Results, directory: Path) -> None:
        self._left = [mutant for mutant in mutants if results.get(mutant.name) is None]
        self._results = results
        self._directory = directory
        self._seed = secrets.token_hex(4)
        self._sound: dict[str, Outcome] = {}
        self._began = time.monotonic()
        self._planned = sum(_planned_s(mutant.suite) for mutant in self._left)
        self._spent = 0.0
        self.unusable: dict[str, list[str]] = {}

    async def run(self) -> None:
        """Tries every mutant of which nothing is known yet."""
        self._say(f"{len(self._left)} mutants to try")
        await self._run_bare([mutant for mutant in self._left if mutant.suite in bare.SUITES])
        await self._run_live([mutant for mutant in self._left if mutant.suite not in bare.SUITES])

    async def _run_bare(self, mutants: Sequence[Mutant]) -> None:
        if not mutants:
            return
        path = self._directory / "bare-switch"
        path.parent.mkdir(parents=True, exist_ok=True)
        switch = Switch(path)
        os.environ[VARIABLE] = str(path)

        async def examine(suite: Suite, until: str | None) -> Outcome:
            return await attempt(suite, bare.target(), self._seed, until)

        try:
            async with bare.Workshop():
                for mutant in mutants:
                    await self._try(mutant, switch, examine)
                    switch.set("")
        finally:
            del os.environ[VARIABLE]

    async def _run_live(self, mutants: Sequence[Mutant]) -> None:
        left = sorted(
            mutants, key=lambda mutant: (mutant.taints, list(MODULES).index(mutant.suite))
        )
        while left:
            self._say("booting a test build")
            with booted(self._directory) as live:
                left = await self._run_boot(live, left)

    async def _run_boot(self, live: Live, mutants: Sequence[Mutant]) -> list[Mutant]:
        """Tries mutants on one boot; returns those that need another."""
        left, tainted = list(mutants), set[str]()

        async def examine(suite: Suite, until: str | None) -> Outcome:
            with live.target() as target:
                return await attempt(suite, target, self._seed, until)

        while (mutant := next((m for m in left if m.suite not in tainted), None)) is not None:
            left.remove(mutant)
            await self._try(mutant, live.switch, examine)
            live.switch.set("")
            if mutant.taints:
                tainted.add(mutant.suite)
            elif trouble := live.trouble():
                self._say(f"{mutant.name} has left something behind ({trouble})")
                break
        return left

    async def _try(self, mutant: Mutant, switch: Switch, examine: Examine) -> None:
        suite = _suite(mutant.suite)
        if suite is None:
            self._note(mutant, Outcome({}, 0.0), f"there is no suite {mutant.suite}")
            return
        sound = self._sound.get(suite.name)
        if sound is None:
            self._say(f"{suite.name}: without any defect")
            sound = self._sound[suite.name] = await examine(suite, None)
            if failed := sound.ids(Verdict.FAILED, deciding=True):
                self.unusable[suite.name] = failed
        if suite.name in self.unusable:
            return
        self._say(f"{mutant.name}: {suite.name}")
        switch.set(mutant.name)
        try:
            found = await examine(suite, mutant.guarantee)
        except AuditError as error:  # such as a command of the operator's that fails
            self._note(mutant, Outcome({}, 0.0), str(error))
            return
        self._note(mutant, found, "" if switch.reached else UNREACHED)

    def _note(self, mutant: Mutant, found: Outcome, why: str) -> None:
        caught = found.ids(Verdict.FAILED, guarantee=mutant.guarantee)
        caught_by = caught[0] if caught and not why else ""
        why = "" if caught_by else why or _doubts(found, self._sound[mutant.suite])
        self._results.put(mutant.name, Result(caught_by, found.seconds, why))
        self._spent += _planned_s(mutant.suite)
        outcome = f"caught by {caught_by}" if caught_by else f"SURVIVED, {why}"
        self._say(f"{mutant.name}: {outcome} ({found.seconds:.0f} s)")

    def _say(self, line: str) -> None:
        elapsed = time.monotonic() - self._began
        share = self._spent / self._planned if self._planned else 1.0
        left = elapsed * (1 - share) / share if share else self._planned
        print(f"{share:4.0%}, {left / 60:3.0f} min left: {line}", file=sys.stderr, flush=True)


def _doubts(found: Outcome, sound: Outcome) -> str:
    """What a suite that has not caught a defect saw of it, if anything."""
    elsewhere = found.ids(Verdict.FAILED)
    doubtful = set(found.ids(Verdict.INCONCLUSIVE)) - set(sound.ids(Verdict.INCONCLUSIVE))
    parts = {"failed, of another guarantee": elsewhere, "inconclusive": sorted(doubtful)}
    said = [f"{what}: {', '.join(names)}" for what, names in parts.items() if names]
    return "; ".join(said) or "no check was worse than without it"


def _planned_s(suite: str) -> float:
    return BUDGETS_S.get(suite, BUDGET_S)


def _suite(name: str) -> Suite | None:
    try:
        module = importlib.import_module(MODULES[name])
    except ModuleNotFoundError as error:
        if error.name != MODULES[name]:
            raise
        return None
    found: Suite = module.SUITE
    return found
