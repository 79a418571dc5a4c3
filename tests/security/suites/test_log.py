"""The log suite finds each way in which a log would not show what was done, and none in ours.

The commands are the real ones on a real database, in this process, so that defects can be planted.
"""

import asyncio
import io
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from saltwall_platform.cli import main
from saltwall_security.check import Check, Verdict
from saltwall_security.operator import CommandLine
from saltwall_security.suite import Audit
from saltwall_security.suites import log
from saltwall_security.suites.log import SUITE, Copies, acts, attacked, copies
from saltwall_security.target import Target, Tenant
from saltwall_tenants import audit, audit_chain
from saltwall_tenants.audit_chain import Kind
from saltwall_tenants.audit_checkpoints import Checkpoint

TURN = threading.Lock()
HELD = {"complete", "whole", *log.CLAIMS}


class InProcess(CommandLine):
    """The `saltwall` command without a process of its own."""

    def _done(self, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        out, err, code = io.StringIO(), io.StringIO(), 0
        with TURN, pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["saltwall", *arguments])
            for name, value in (self.environ | environ).items():
                patch.setenv(name, value)
            with redirect_stdout(out), redirect_stderr(err):
                try:
                    main()
                except SystemExit as end:
                    code = int(end.code or 0)
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def installed(home: Path, migrated: Path) -> InProcess:
    """An operator of a new installation, whose engine is not there."""
    home.mkdir()
    shutil.copy(migrated, home / "saltwall.db")
    engines = '[{"name": "demo", "url": "http://127.0.0.1:9"}]'
    return InProcess([], {"SALTWALL_HOME": str(home), "SALTWALL_ENGINES": engines})


@pytest.fixture
def operator(tmp_path: Path, migrated_sqlite: Path) -> InProcess:
    """An installation of the test's own, in `home`."""
    return installed(tmp_path / "home", migrated_sqlite)


@pytest.fixture(scope="module")
def acted(
    tmp_path_factory: pytest.TempPathFactory, migrated_sqlite: Path
) -> tuple[InProcess, Path, list[int]]:
    """An installation with all acts in its log."""
    home = tmp_path_factory.mktemp("acted") / "home"
    operator = installed(home, migrated_sqlite)
    _, tenant = asyncio.run(acts.check_acts(operator))
    database = home / "saltwall.db"
    return operator, database, copies.of_tenant(database, str(tenant.id))


async def by_name(checks: AsyncIterator[Check]) -> Mapping[str, Check]:
    """Checks by the name within the suite."""
    return {check.id.partition("/")[2]: check async for check in checks}


async def audited(operator: CommandLine, *files: Path) -> Mapping[str, Check]:
    """The whole suite's checks."""
    tenants = [Tenant("one"), Tenant("two")]
    target = Target("http://127.0.0.1:9/v1", tenants, operator=operator, files=files)
    async with Audit(target, "1", 60, lambda _: None) as audited:
        return await by_name(SUITE.run(audited))


def failed(checks: Mapping[str, Check]) -> set[str]:
    """Those that failed."""
    return {name for name, check in checks.items() if check.verdict is Verdict.FAILED}


async def test_our_log_holds(operator: InProcess, tmp_path: Path) -> None:
    """Every check is made and held; nothing of the auditor's is in the installation's own log."""
    database = tmp_path / "home" / "saltwall.db"
    checks = await audited(operator, tmp_path / "home")
    assert {name: check.seen for name, check in checks.items() if check.verdict != "held"} == {}
    assert checks.keys() == HELD
    anchor = tmp_path / "home" / "audit-checkpoints.jsonl"
    said = await asyncio.to_thread(operator.verify_log, database, anchor)
    assert (said["verdict"], said["events"]) == ("whole", len(acts.AT_FIRST) + 8)


def without(function: Callable[..., Any], *kinds: Kind) -> Callable[..., Any]:
    """It, blind to these kinds of problems."""
    return lambda *given: [found for found in function(*given) if found.kind not in kinds]


def credulous(report: audit_chain.Report) -> str:
    """A verdict that knows no doubt."""
    return "tampered" if report.problems else "whole"


BLIND: list[tuple[str, object, str, object]] = [
    ("edited", audit_chain, "broken", without(audit_chain.broken, Kind.EDITED)),
    ("deleted", audit_chain, "broken", without(audit_chain.broken, Kind.MISSING)),
    ("reordered", audit_chain, "broken", without(audit_chain.broken, Kind.REORDERED)),
    ("truncated", audit_chain, "contradicted", without(audit_chain.contradicted, Kind.TRUNCATED)),
    ("rewritten", audit_chain, "contradicted", without(audit_chain.contradicted, Kind.REWRITTEN)),
    ("forged", audit_chain, "contradicted", without(audit_chain.contradicted, Kind.FOREIGN)),
    ("forged", Checkpoint, "is_genuine", lambda checkpoint: True),
    ("appended", audit_chain.Report, "verdict", property(credulous)),
]


@pytest.mark.parametrize(("check", "owner", "name", "defect"), BLIND)
async def test_a_verification_that_is_blind_is_found(
    acted: tuple[InProcess, Path, list[int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    check: str,
    owner: object,
    name: str,
    defect: object,
) -> None:
    """By the check that is named for what it does not see."""
    monkeypatch.setattr(owner, name, defect)
    operator, database, own = acted
    checks = await by_name(attacked(Copies(operator, database, tmp_path, own)))
    assert check in failed(checks)


async def test_a_hash_that_leaves_the_detail_out_is_found(
    operator: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although nothing of the log itself looks wrong."""
    genuine = audit.event_hash
    for module in (audit, audit_chain):
        defect = lambda previous, event: genuine(previous, replace(event, detail={}))  # noqa: E731
        monkeypatch.setattr(module, "event_hash", defect)
    checks = await audited(operator, tmp_path / "home")
    assert failed(checks) == {"edited"}
    assert checks["rewritten"].verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("times", "action", "said"),
    [
        (0, "key.revoke", "1 x key.revoke too few"),
        (2, "quota.clear", "1 x quota.clear too many"),
        (0, "tenant.create", "after the tenant was created"),
    ],
)
async def test_an_act_that_is_not_once_in_the_log_is_found(
    operator: InProcess, monkeypatch: pytest.MonkeyPatch, times: int, action: str, said: str
) -> None:
    """And named."""
    genuine = audit.record

    async def record(tx: Any, **event: Any) -> None:
        for _ in range(times if event["action"] == action else 1):
            await genuine(tx, **event)

    monkeypatch.setattr(audit, "record", record)
    checks = await audited(operator)
    assert failed(checks) == {"complete"}
    assert said in checks["complete"].seen


async def test_a_log_that_has_been_tampered_with_fails(operator: InProcess, tmp_path: Path) -> None:
    """And the attacks on its copies tell nothing."""
    await asyncio.to_thread(operator.create_tenant, "acme")
    with sqlite3.connect(tmp_path / "home" / "saltwall.db") as connection:
        connection.execute("UPDATE audit_events SET actor = 'nobody' WHERE sequence = 1")
    connection.close()
    checks = await audited(operator, tmp_path / "home")
    assert failed(checks) == {"whole"}
    assert checks["edited"].verdict is Verdict.INCONCLUSIVE


async def test_without_the_database_only_acts_are_tested(
    operator: InProcess, tmp_path: Path, migrated_sqlite: Path
) -> None:
    """Another one does not stand for it."""
    for files in ((), (Path(shutil.copy(migrated_sqlite, tmp_path / "other.db")),)):
        checks = await audited(operator, *files)
        assert {name for name, c in checks.items() if c.verdict is Verdict.HELD} == {"complete"}
        rest = {c.verdict for name, c in checks.items() if name != "complete"}
        assert (rest, checks.keys()) == ({Verdict.NOT_TESTED}, HELD)


async def test_of_a_very_large_database_no_copies_are_made(
    operator: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would fill the disk of the gateway's host."""
    monkeypatch.setattr(log, "MOST_BYTES", 1000)
    checks = await audited(operator, tmp_path / "home")
    untested = {name for name, check in checks.items() if check.verdict is Verdict.NOT_TESTED}
    assert untested == HELD - {"complete"}
    assert "saltwall.db has 0 MiB" in checks["edited"].seen


async def test_a_copy_is_gone_when_its_attack_has_been_judged(
    acted: tuple[InProcess, Path, list[int]], tmp_path: Path
) -> None:
    """Only the genuine one stays until the end, however the commands end."""
    operator, database, own = acted
    checks = await by_name(attacked(Copies(operator, database, tmp_path, own)))
    assert {check.verdict for check in checks.values()} == {Verdict.HELD}
    assert {name.partition(".")[0] for name in os.listdir(tmp_path)} == {"genuine"}


async def test_a_platform_without_such_a_log_is_not_tested() -> None:
    """Its command knows of none."""
    checks = await audited(CommandLine([sys.executable, "-c", "exit(2)"], {}))
    assert {check.verdict for check in checks.values()} == {Verdict.NOT_TESTED}
    assert checks.keys() == HELD


async def test_a_verification_that_crashes_tells_nothing(
    acted: tuple[InProcess, Path, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exit code without a report is no detection."""
    genuine = InProcess._done

    def done(operator: InProcess, *given: str, **more: str) -> Any:
        crashed = "verify" in given and "genuine" not in more["SALTWALL_DATABASE_URL"]
        found = genuine(operator, *given, **more)
        return subprocess.CompletedProcess(given, 1, "", "Traceback") if crashed else found

    monkeypatch.setattr(InProcess, "_done", done)
    operator, database, own = acted
    checks = await by_name(attacked(Copies(operator, database, tmp_path, own)))
    assert {check.verdict for check in checks.values()} == {Verdict.INCONCLUSIVE}
