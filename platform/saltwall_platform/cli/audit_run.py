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
from saltwall_security.report.writers import FILES, Written
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


def audit(plan: Plan, write: Callable[[Report], Written]) -> tuple[Report, Written]:
    """Attacks everything in turn; the last report, and what came of writing it.

    Args:
        write: takes each report as soon as there is one, before anything that may be slow or fail;
            what comes after loses none.

    Raises:
        CliError, AuditError: it cannot be done; the message says what to do.
    """
    kept: list[tuple[Report, Written]] = []

    def keep(found: Report) -> None:
        # The target's comes first, its baseline's then stands in it.
        whole = kept[0][0].model_copy(update={"baseline": found}) if kept else found
        kept.append((whole, write(whole)))

    progress = AuditProgress()
    audit_target.check_url("--target", plan.given.target)
    audit_target.check_url("--baseline", plan.baseline)
    audit_target.check_url("--engine", plan.given.engine, audit_target.ENGINE_EXAMPLE)
    if plan.baseline == plan.given.target == audit_target.STOCK:
        raise CliError("the target is stock vLLM already: leave --baseline away")
    if audit_target.STOCK in (plan.baseline, plan.given.target):
        stock_vllm.check()
    try:
        with audit_signals.interruptible():
            with audit_target.opened(plan.given, progress.note) as target:
                whole = asyncio.run(_attack(plan, target, keep))
            if not whole:
                progress.note("saltwall: interrupted: what was found until then is in the report")
            elif plan.baseline is not None:
                with _baseline(plan, progress) as target:
                    asyncio.run(_attack(replace(plan, asked=()), target, keep))
    except (Exception, KeyboardInterrupt, asyncio.CancelledError) as error:
        if not kept and isinstance(error, asyncio.CancelledError):
            raise KeyboardInterrupt from None
        if not kept:
            raise
        missing = "no baseline in this report: " if plan.baseline and len(kept) == 1 else ""
        progress.note(f"saltwall: {missing}{_reason(error)}")
    finally:
        progress.clear()
    return kept[-1]


def _reason(error: BaseException) -> str:
    """What an error says, where it is meant to be read."""
    if isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
        return "interrupted"
    return str(error) if isinstance(error, (*EXPECTED, AuditError)) else type(error).__name__


async def _attack(plan: Plan, target: Target, keep: Callable[[Report], None]) -> bool:
    """Keeps the report; whether nobody interrupted the suites."""
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
        with audit_signals.undisturbed():
            keep(report(target, results, how))
    return whole


async def _finished(
    attack: asyncio.Task[list[SuiteResult]], progress: AuditProgress
) -> tuple[list[SuiteResult], bool]:
    """What the suites have found, and whether nobody interrupted them."""
    whole = True
    while not attack.done():
        try:
            await asyncio.wait({attack})
        except asyncio.CancelledError:
            if whole:
                progress.note("stopping: ending what runs and deleting what was created")
            whole = False
            attack.cancel()
    return attack.result(), whole


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
    """The directory for the reports, before the run: that they cannot be written must show now.

    Those of an earlier run are removed, or they would be taken for this one's if it fails.
    """
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / name for name in FILES.values()]
    for path in paths:
        path.open("a").close()
        if not path.stat().st_size:  # it was not there
            path.unlink()
    for path in paths:
        path.unlink(missing_ok=True)
    if shutil.disk_usage(directory).free < 1 << 20:
        raise CliError(f"the disk is full at {directory}: free some, or name another with --out")
    return directory
