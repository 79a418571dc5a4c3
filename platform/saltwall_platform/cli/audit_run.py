"""Runs an audit: the target, then the baseline, and the report of both."""

import asyncio
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from saltwall_platform.cli import audit_keys, audit_signals, audit_target
from saltwall_platform.cli.audit_progress import AuditProgress
from saltwall_platform.cli.audit_target import Given
from saltwall_platform.cli.errors import EXPECTED, CliError
from saltwall_platform.stack import stock_vllm
from saltwall_security import run
from saltwall_security.errors import AuditError
from saltwall_security.report.build import Circumstances, report
from saltwall_security.report.document import Report
from saltwall_security.report.redaction import redaction
from saltwall_security.run import SuiteResult
from saltwall_security.server import server_version
from saltwall_security.suite import Suite
from saltwall_security.target import Target


@dataclass(frozen=True)
class Plan:
    """What `saltwall audit run` was asked to do.

    Args:
        suites: those to run; `asked` are the names that were chosen, none for all.
        budget_s: for each target.
        baseline: "stock", or a URL; the same suites run there afterwards.
    """

    given: Given
    suites: Sequence[Suite]
    asked: Sequence[str]
    budget_s: float
    seed: str
    baseline: str | None


def audit(plan: Plan) -> Report:
    """Attacks everything in turn.

    Raises:
        CliError, AuditError: it cannot be done; the message says what to do.
    """
    progress = AuditProgress()
    audit_target.check_url("--target", plan.given.target)
    audit_target.check_url("--baseline", plan.baseline)
    audit_target.check_url("--engine", plan.given.engine, audit_target.ENGINE_EXAMPLE)
    if plan.baseline == plan.given.target == audit_target.STOCK:
        raise CliError("the target is stock vLLM already: leave --baseline away")
    if audit_target.STOCK in (plan.baseline, plan.given.target):
        stock_vllm.check()
    with audit_signals.interruptible():
        try:
            with audit_target.opened(plan.given, progress.note) as target:
                attacked, whole = asyncio.run(_attack(plan, target))
            if not whole:
                progress.note("saltwall: interrupted: what was found until then is in the report")
            if plan.baseline is None or not whole:
                return attacked
            try:
                with _baseline(plan, progress) as target:
                    beside, _ = asyncio.run(_attack(replace(plan, asked=()), target))
            except (*EXPECTED, AuditError) as error:  # what was found must not be lost
                progress.note(f"saltwall: no baseline in this report: {error}")
                return attacked
        except asyncio.CancelledError:  # again, while it ended
            raise KeyboardInterrupt from None
        finally:
            progress.clear()
    return attacked.model_copy(update={"baseline": beside})


async def _attack(plan: Plan, target: Target) -> tuple[Report, bool]:
    """The report, and whether nobody interrupted the suites."""
    clean = redaction(target)
    progress = AuditProgress(f"{target.label}, " if plan.baseline is not None else "", clean)
    try:
        target = await run.prepare(target)
    except AuditError as error:
        raise type(error)(clean(str(error))) from None
    server = await server_version(target)
    started, began = datetime.now(UTC), time.monotonic()
    attack = asyncio.create_task(run.run(target, plan.suites, plan.budget_s, plan.seed, progress))
    with audit_signals.cancelling(asyncio.current_task() or attack):
        results, whole = await _finished(attack, progress)
    progress.clear()
    how = Circumstances(
        started=started,
        seconds=time.monotonic() - began,
        budget_s=plan.budget_s,
        seed=plan.seed,
        command=command(sys.argv[1:], plan.seed),
        asked=plan.asked,
        server=server,
    )
    return report(target, results, how), whole


async def _finished(
    attack: asyncio.Task[list[SuiteResult]], progress: AuditProgress
) -> tuple[list[SuiteResult], bool]:
    """What the suites have found, and whether nobody interrupted them."""
    try:
        return await asyncio.shield(attack), True
    except asyncio.CancelledError:
        progress.note("stopping: ending what runs and deleting what was created")
        attack.cancel()
        return await attack, False


@contextmanager
def _baseline(plan: Plan, progress: AuditProgress) -> Iterator[Target]:
    keyless = Given(keys=[audit_keys.KEYLESS], home=plan.given.home)
    if plan.baseline == audit_target.STOCK:
        with audit_target.stock(keyless, progress.note) as target:
            yield target
    else:
        elsewhere = replace(keyless, target=plan.baseline, home=None)
        with audit_target.opened(elsewhere, progress.note) as target:
            yield target


def command(arguments: Sequence[str], seed: str) -> str:
    """The command that repeats a run, from what was typed: with the seed, without keys.

    Passwords in URLs are still in it.
    """
    words = ["saltwall"]
    value_of = ""
    for argument in arguments:
        option, equals, value = argument.partition("=")
        if value_of in _SHOWN:
            words.append(_SHOWN[value_of](argument))
        elif option in _SHOWN and equals:
            words.append(f"{option}={_SHOWN[option](value)}")
        elif value_of != "--seed" and option != "--seed":
            words.append(argument)
        value_of = option if option.startswith("--") and not equals else ""
    return shlex.join([*words, "--seed", seed])


def _first_word(command: str) -> str:
    first, space, _ = command.strip().partition(" ")
    return f"{first} ..." if space else first


_SHOWN: Final[Mapping[str, Callable[[str], str]]] = {
    "--keys": audit_keys.without_keys,
    "--operator": _first_word,
    "--restart": _first_word,
}
"""What may be seen of the values of options that may hold a secret."""


def prepared(directory: Path) -> Path:
    """The directory for the reports, made before the run: that it cannot be must show now."""
    directory.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(directory).free < 1 << 20:
        raise CliError(f"the disk is full at {directory}: free some, or name another with --out")
    return directory
