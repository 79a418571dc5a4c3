"""`saltwall audit run` on the real stack: what is tested holds, and fails on stock vLLM."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from flood.targets import Target
from running_stack import SALTWALL, Stack

from saltwall_security.report.schema import PATH

BUDGET = "60s"
DECIDED = 6
"""Guarantees that the run can tell on any machine, at least; on two quiet cores it is all twelve.

Of the others it says inconclusive, which is no pass, and how long it would need.
"""
BROKEN_ON_STOCK = {"isolation": "G1", "recovery": "G3"}
"""What needs little time to show where the cache is everybody's, and the guarantee that fails."""


@dataclass(frozen=True)
class Audited:
    """How a run ended, what it said, and the report that it left."""

    code: int
    said: str = field(repr=False)
    report: Mapping[str, Any] = field(repr=False)

    def verdicts(self) -> dict[str, str]:
        """Of each guarantee."""
        return {entry["id"]: entry["verdict"] for entry in self.report["guarantees"]}

    def suites(self) -> dict[str, str]:
        """Of each suite."""
        return {entry["name"]: entry["verdict"] for entry in self.report["suites"]}


def audit(stack: Stack, out: Path, *options: str) -> Audited:
    """Runs the command as an operator types it."""
    done = subprocess.run(
        [*SALTWALL, "audit", "run", *options, "--budget", BUDGET, "--out", str(out)],
        env=stack.environ,
        cwd=stack.home,
        capture_output=True,
        text=True,
    )
    assert (out / "report.json").exists(), done.stderr
    report = json.loads((out / "report.json").read_text())
    return Audited(done.returncode, done.stdout + done.stderr, report)


@pytest.fixture(scope="module")
def ours(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """Every suite, on what runs here, found by its data directory alone."""
    pid = (stack.home / "run" / "engine.pid").read_text().strip()
    given = ("--home", str(stack.home), "--restart", f"kill {pid}")
    return audit(stack, tmp_path_factory.mktemp("ours"), *given)


@pytest.fixture(scope="module")
def theirs(stack: Stack, plain: Target, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """The suites that need neither keys nor an operator, on stock vLLM."""
    suites = [word for name in BROKEN_ON_STOCK for word in ("--suite", name)]
    given = ("--target", plain.base_url, "--keys", "none", *suites)
    return audit(stack, tmp_path_factory.mktemp("theirs"), *given)


@pytest.mark.timeout(900)
def test_no_attack_succeeds(ours: Audited) -> None:
    """Every guarantee is attacked; the audit log's needs no luck."""
    verdicts = ours.verdicts()
    assert ours.code != 1, ours.said
    assert verdicts["G12"] == "held", ours.said
    assert ours.suites()["restart"] == "held", ours.said
    assert set(verdicts.values()) <= {"held", "inconclusive"}
    assert list(verdicts.values()).count("held") >= DECIDED, ours.said


def test_the_report_fits_its_schema(ours: Audited) -> None:
    """With real figures, tables and plots."""
    jsonschema.validate(ours.report, json.loads(PATH.read_text()))


def test_the_auditor_leaves_nothing_behind(stack: Stack, ours: Audited) -> None:
    """No tenant, and no request that still runs."""
    names = {row["name"] for row in json.loads(stack.saltwall("tenant", "list", "--json").stdout)}
    assert not [name for name in names if name.startswith("audit-")]
    assert stack.busy() == 0


def test_no_secret_of_the_stack_is_in_the_report(stack: Stack, ours: Audited) -> None:
    """Neither the control secret nor a key."""
    text = json.dumps(ours.report) + ours.said
    assert stack.secret not in text
    assert "sw_live_" not in text


@pytest.mark.timeout(900)
def test_the_same_attacks_break_stock_vllm(theirs: Audited) -> None:
    """The attacks are real ones: it is the product that stops them."""
    assert theirs.code == 1, theirs.said
    verdicts = theirs.verdicts()
    assert {verdicts[guarantee] for guarantee in BROKEN_ON_STOCK.values()} == {"failed"}


def test_other_commands_find_the_engine_of_up(stack: Stack) -> None:
    """Though its port is none that they would guess, and no variable says it."""
    (engine,) = json.loads(stack.saltwall("quota", "show", "acme", "--json").stdout)["engines"]
    assert "now" in engine
    assert "SALTWALL_ENGINES" not in stack.environ
    ready = (stack.home / "run" / "ready.json").read_text()
    assert not [key for key in (stack.secret, *stack.keys.values()) if key in ready]
