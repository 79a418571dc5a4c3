"""The auditor's own test, in short: what needs no engine is caught, and the rest can be tried."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mutants import catalogue
from mutants.mutant import Mutant, Where
from mutants.switch import VARIABLE, Switch
from results import Result, Results
from table import markdown

from saltwall_security.guarantees import GUARANTEES
from saltwall_security.registry import MODULES

HERE = Path(__file__).parent
SHORT = ("eviction-below-reserve", "own-idle-recycled", "ceiling-ignores-idle")
PROBE = "from saltwall_tenants.wire import derive_kv_salt; print(derive_kv_salt(b'a' * 32, 'm'))"


def test_build(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Runs Python as the processes of a test build are run."""
    support = (HERE.parent / "support", HERE.parent / "benchmarks", HERE / "testbuild")
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, support))} | environment
    return subprocess.run(
        [sys.executable, *arguments], env=environ, capture_output=True, text=True, check=False
    )


test_build.__test__ = False  # type: ignore[attr-defined]


def test_every_mutant_names_a_suite_and_a_guarantee_and_replaces_something() -> None:
    """The list is of use only if each line of it can be tried."""
    patched = {patch.mutant for patch in catalogue.patches()}
    for mutant in catalogue.mutants():
        assert mutant.suite in MODULES, mutant
        assert mutant.guarantee in GUARANTEES, mutant
        assert mutant.name in patched, mutant


def test_every_patch_takes() -> None:
    """Each target exists, and whoever calls it calls the dispatcher."""
    done = test_build(str(HERE / "applied.py"))
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_a_short_list_of_mutants_is_caught(tmp_path: Path) -> None:
    """Without an engine: `make audit-mutations` tries the others."""
    done = test_build(str(HERE), "--only", ",".join(SHORT), "--directory", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert f"{len(SHORT)} of {len(SHORT)} mutants caught" in done.stdout


def test_a_defect_is_on_only_while_it_is_switched_on(tmp_path: Path) -> None:
    """A process of the test build without a defect is the product."""
    path = tmp_path / "switch"
    switch = Switch(path)
    product = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=True
    ).stdout

    def seen() -> str:
        return test_build("-c", PROBE, **{VARIABLE: str(path)}).stdout

    assert seen() == product
    assert not switch.reached
    switch.set("salt-constant-across-tenants")
    assert seen() != product
    assert switch.reached
    switch.set("")
    assert seen() == product


MUTANT = catalogue.mutants()[0]


def test_a_survivor_is_told_from_a_catch() -> None:
    """In the table, and in the score below it."""

    class Found:
        def __init__(self, result: Result | None) -> None:
            self.result = result

        def get(self, mutant: str) -> Result | None:
            return self.result

    def table(result: Result | None) -> str:
        return markdown([MUTANT], Found(result))  # type: ignore[arg-type]

    assert "1 of 1" in table(Result("suite/check", 1.0))
    assert "**survived**: it held" in table(Result("", 1.0, "it held"))
    assert "0 of 1" in table(Result("", 1.0, "it held"))
    assert "0 of 1" in table(None)


@pytest.mark.parametrize("same", [True, False])
def test_what_was_found_on_other_source_is_tried_again(tmp_path: Path, same: bool) -> None:
    """A run goes on where it stopped only if nothing has changed."""
    path = tmp_path / "results.json"
    Results(path, keep=True).put(MUTANT.name, Result("suite/check", 1.0))
    if not same:
        kept: dict[str, Any] = json.loads(path.read_text())
        path.write_text(json.dumps(kept | {"tree": "another"}))
    assert (Results(path, keep=True).get(MUTANT.name) is not None) is same
    assert Results(path, keep=False).get(MUTANT.name) is None


def test_two_mutants_of_one_name_are_refused() -> None:
    """A name on the command line means one of them."""
    with pytest.raises(ValueError, match="two mutants"):
        Mutant(MUTANT.name, "again", Where.GATEWAY, "keys", "G7")
