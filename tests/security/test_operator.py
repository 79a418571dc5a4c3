"""The auditor's operator is the real `saltwall` command, and its errors are safe to print."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from saltwall_platform.cli import prepared
from saltwall_platform.cli.prepared import PreparedCommandLine
from saltwall_security import operator as operator_module
from saltwall_security.errors import AuditError
from saltwall_security.operator import CommandLine
from saltwall_security.target import Tenant

MODULE = "python -m saltwall_platform.cli"


@pytest.fixture(scope="module", params=["a process each", "forks"])
def operator(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, migrated_sqlite: Path
) -> CommandLine:
    """On a database of its own, and an engine that is not there."""
    home = tmp_path_factory.mktemp("operator")
    shutil.copy(migrated_sqlite, home / "saltwall.db")
    found = {k: v for k, v in os.environ.items() if not k.startswith("SALTWALL_")}
    found |= {
        "SALTWALL_HOME": str(home),
        "SALTWALL_ENGINES": '[{"name": "demo", "url": "http://127.0.0.1:9"}]',
    }
    if request.param == "forks":
        return PreparedCommandLine(found)
    return CommandLine([sys.executable, "-m", "saltwall_platform.cli"], found)


@pytest.fixture(scope="module")
def tenant(operator: CommandLine) -> Tenant:
    """A tenant that it has created."""
    return operator.create_tenant("acme")


def test_a_tenant_comes_with_a_key_that_is_not_printed(tenant: Tenant) -> None:
    """Its id is known, and its key is in no representation."""
    assert tenant.id
    assert tenant.key
    assert tenant.key not in repr(tenant)


def test_an_error_is_the_commands_own_line(operator: CommandLine, tenant: Tenant) -> None:
    """It says what to do."""
    with pytest.raises(AuditError, match=r"`saltwall quota set`.*120% is more than all"):
        operator.set_quota(tenant, reserve="120%")


@pytest.mark.parametrize(
    ("command", "local"),
    [
        ("saltwall", True),
        ("/opt/saltwall/bin/saltwall", True),
        (f"/usr/bin/{MODULE}", True),
        ("ssh gateway saltwall", False),
        (f"docker exec gateway {MODULE}", False),
        ("env SALTWALL_PORT=8080 saltwall", False),
    ],
)
def test_only_the_command_itself_is_sure_to_run_here(command: str, local: bool) -> None:
    """With the environment that it is given; what a wrapper does is unknown."""
    assert CommandLine(command.split(), {}).local is local


def test_no_error_has_a_key_in_it(operator: CommandLine, tenant: Tenant) -> None:
    """Not even one that was mistaken for a name."""
    with pytest.raises(AuditError) as caught:
        operator.suspend(Tenant(str(tenant.key)))
    assert str(tenant.key) not in str(caught.value)


def test_the_log_of_a_copy_is_verified(
    operator: CommandLine, tenant: Tenant, tmp_path: Path
) -> None:
    """By its checkpoints; the installation's own log is not meant."""
    assert operator.log_events(1)[0]["actor"].startswith("cli:")
    copied, anchor = tmp_path / "copy.db", tmp_path / "anchor.jsonl"
    shutil.copy(Path(operator.environ["SALTWALL_HOME"]) / "saltwall.db", copied)
    operator.sign_log(copied, anchor)
    assert operator.verify_log(copied, anchor)["verdict"] == "whole"
    assert operator.verify_log(copied)["verdict"] == "unproven"
    with pytest.raises(AuditError, match=r"`saltwall log verify`.*no database"):
        operator.verify_log(tmp_path / "none.db")


def test_what_is_enforced_is_asked_of_engines(operator: CommandLine, tenant: Tenant) -> None:
    """What is stored is not taken for it: without an engine there is no answer."""
    with pytest.raises(AuditError, match="no engine says what it enforces"):
        operator.enforced_quotas()


def test_a_reserve_that_no_engine_has_is_stored_unasked(
    operator: CommandLine, tenant: Tenant
) -> None:
    """As when engines are down."""
    operator.oversell(tenant, 10**6)
    assert '"1000000 blocks"' in operator.printed("quota", "show", tenant.name, "--json")
    operator.clear_quota(tenant)
    told = "import os; assert ':9\"' in os.environ['SALTWALL_ENGINES']"
    CommandLine([sys.executable, "-c", told], {}).oversell(tenant, 1)


def test_replicas_are_told_from_engines_of_other_models(
    operator: CommandLine, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those share a name."""
    names = ["chat", "code", "code"]
    engines = [{"name": n, "url": f"http://127.0.0.1:{p}"} for p, n in enumerate(names, 9)]
    assert operator.replicas() == 1
    monkeypatch.setitem(operator.environ, "SALTWALL_ENGINES", json.dumps(engines[:2]))
    assert operator.replicas() == 1
    monkeypatch.setitem(operator.environ, "SALTWALL_ENGINES", json.dumps(engines))
    assert operator.replicas() == 2


def test_a_command_that_is_not_there_is_named() -> None:
    """By its path."""
    with pytest.raises(AuditError, match="/nowhere/saltwall"):
        CommandLine(["/nowhere/saltwall"], {}).revoke_key("x")


def test_a_command_that_is_not_there_leaves_nothing_behind() -> None:
    """It has created nothing, so nothing is to be deleted."""
    absent = CommandLine(["/nowhere/saltwall"], {})
    with pytest.raises(AuditError):
        absent.create_tenant("audit-x")
    assert absent.delete_leftovers() == []


def test_a_command_that_hangs_is_ended(
    operator: CommandLine, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And named; what it was asked to do is in doubt."""
    for module in (prepared, operator_module):
        monkeypatch.setattr(module, "TIMEOUT_S", 0.01)
    with pytest.raises(AuditError, match="`saltwall tenant suspend` has not ended"):
        operator.suspend(tenant)


class Killed(CommandLine):
    """Commands that create something are killed once they have done it; others decline."""

    def _done(self, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        done = super()._done(*arguments, **environ)
        if "create" in arguments and not done.returncode:
            raise AuditError("killed")
        return done


def test_a_tenant_whose_creation_was_cut_off_is_deleted(
    operator: CommandLine, tenant: Tenant
) -> None:
    """By its name; one that there was before is somebody else's, one that is gone no problem."""
    killed = Killed([sys.executable, "-m", "saltwall_platform.cli"], operator.environ)
    with pytest.raises(AuditError, match="killed"):
        killed.create_tenant("half-made")
    with pytest.raises(AuditError, match="exists; choose another name"):
        killed.create_tenant(tenant.name)
    assert "half-made" in operator.printed("tenant", "list")
    assert killed.delete_leftovers() == []
    said = operator.printed("tenant", "list")
    assert ("half-made" in said, tenant.name in said) == (False, True)
    with pytest.raises(AuditError, match="killed"):
        killed.create_tenant("deleted-meanwhile")
    operator.delete_tenant(Tenant("deleted-meanwhile"))
    assert killed.delete_leftovers() == []


def test_a_key_is_in_no_file(
    operator: CommandLine, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even while its command runs: it would outlive an auditor that is killed."""
    for name in ("mkdtemp", "mkstemp"):
        monkeypatch.setattr(tempfile, name, None)
    assert operator.create_key(tenant)[1].startswith("sw_live_")


def test_forks_print_what_programs_print(operator: CommandLine) -> None:
    """Help, usage errors and versions, with the name of the program."""
    alone = CommandLine([sys.executable, "-m", "saltwall_platform.cli"], operator.environ)
    for arguments in (["--version"], ["quota", "set"], ["nonsense"]):
        said = alone.printed(*arguments).replace(MODULE, "saltwall")
        assert operator.printed(*arguments).replace(MODULE, "saltwall") == said
