"""The workflow for users' repositories does what it says, step by step."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from word_cache_server import WordCache, serving

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / "security" / "github-actions" / "saltwall-audit.yml"
KEYS = {"KEY_A": "key-of-tenant-a", "KEY_B": "key-of-tenant-b"}
COMMAND = f"""#!{sys.executable}
from saltwall_platform.cli import main
from saltwall_security import registry
registry.MODULES.clear()
registry.MODULES["probe"] = "audit_probe"
main()
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def step(name: str) -> dict[str, Any]:
    """A step of its one job."""
    (job,) = yaml.safe_load(WORKFLOW.read_text())["jobs"].values()
    (found,) = [each for each in job["steps"] if each.get("name") == name]
    return dict(found)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a step's script as a runner does, with the smallest suite alone."""
    program = tmp_path / "bin" / "saltwall"
    program.parent.mkdir()
    program.write_text(COMMAND)
    program.chmod(0o755)
    environ = os.environ | {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "tests" / "support"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }

    def run_step(name: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", step(name)["run"]],
            cwd=tmp_path,
            env=environ | environment,
            capture_output=True,
            text=True,
        )

    return run_step


@pytest.mark.parametrize(("apart", "code"), [(True, 0), (False, 1)], ids=["apart", "leaky"])
def test_the_job_ends_as_the_audit_does(run: Run, tmp_path: Path, apart: bool, code: int) -> None:
    """With the environment that it names; the reports are where the later steps look for them."""
    server = WordCache(keys=frozenset(KEYS.values()), apart=apart)
    with serving(server):
        done = run("Audit", TARGET=server.url, BUDGET="5s", **KEYS)
    assert done.returncode == code, done.stderr
    assert set(step("Audit")["env"]) == {"TARGET", "BUDGET", *KEYS}
    assert run("Summary").returncode == 0
    assert "GUARANTEE" in (tmp_path / "summary.md").read_text()
    kept = tmp_path / step("Keep the report")["with"]["path"]
    assert (tmp_path / step("Show findings")["with"]["sarif_file"]).parent == kept
    assert (kept / "report.sarif").exists()


def test_a_cancelled_job_keeps_its_report() -> None:
    """It says what was found until then."""
    for name in ("Summary", "Keep the report", "Show findings"):
        assert step(name)["if"].startswith("${{ always() && hashFiles(")


def test_secrets_reach_the_audit_by_its_environment_alone() -> None:
    """Never a command line, which logs and process lists show."""
    for each in yaml.safe_load(WORKFLOW.read_text())["jobs"]["audit"]["steps"]:
        assert "secrets." not in each.get("run", "")
        assert "${{" not in each.get("run", "")
