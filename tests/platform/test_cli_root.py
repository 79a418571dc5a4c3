"""What every command has in common, `doctor`, and what `up` refuses before it starts."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine

from saltwall_platform.cli.session import settings
from saltwall_platform.stack import doctor

COMMANDS = [
    ("up",),
    ("gateway",),
    ("engine",),
    ("doctor",),
    ("version",),
    *(("db", name) for name in ("upgrade", "current")),
    *(("tenant", name) for name in ("create", "list", "show", "suspend", "resume", "delete")),
    *(("key", name) for name in ("create", "list", "revoke")),
    *(("salt", name) for name in ("rotate", "list")),
    *(("quota", name) for name in ("set", "clear", "show")),
    *(("log", name) for name in ("list", "verify", "checkpoint")),
    *(("audit", name) for name in ("run", "list", "report")),
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data directory that the commands use, on ports that are free."""
    monkeypatch.setenv("SALTWALL_HOME", str(tmp_path / "home"))
    for variable in ("SALTWALL_PORT", "SALTWALL_ADMIN_PORT"):
        with socket.create_server(("127.0.0.1", 0)) as server:
            monkeypatch.setenv(variable, str(server.getsockname()[1]))
    return tmp_path / "home"


@pytest.fixture
def saltwall(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    """The command line."""
    return CommandLine(capsys, monkeypatch)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(saltwall: CommandLine, command: tuple[str, ...]) -> None:
    """--help works everywhere, touches nothing, and names what the command takes."""
    assert f"saltwall {' '.join(command)}" in saltwall.ok(*command, "--help")


@pytest.mark.parametrize("group", sorted({command[0] for command in COMMANDS if command[1:]}))
def test_the_list_of_commands_cuts_nothing_off(
    saltwall: CommandLine, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    """On a terminal of the usual width."""
    monkeypatch.setenv("COLUMNS", "80")
    assert "..." not in saltwall.ok(group, "--help").partition("Commands:")[2]


def test_the_version_is_the_distributions(saltwall: CommandLine) -> None:
    """Both spellings, and the versions that matter as JSON."""
    versions = json.loads(saltwall.ok("version", "--json"))
    assert saltwall.ok("--version") == f"saltwall {versions['saltwall']}\n"
    assert versions["vllm"].startswith("0.")
    assert versions["python"] == sys.version.split()[0]


def test_a_usage_error_has_exit_code_2(saltwall: CommandLine) -> None:
    """As everywhere on Unix."""
    assert saltwall("tenant", "create").code == 2
    assert saltwall("nonsense").code == 2


def test_the_module_is_the_script(tmp_path: Path) -> None:
    """`python -m saltwall_platform.cli`, from any directory."""
    run = subprocess.run(
        [sys.executable, "-m", "saltwall_platform.cli", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.startswith("saltwall ")


def test_a_gateway_without_a_database_says_what_to_run(saltwall: CommandLine) -> None:
    """It does not migrate by itself: several gateways may share one."""
    assert "saltwall db upgrade" in saltwall.refused("gateway")


def test_in_the_wrong_directory_the_missing_database_is_named(
    saltwall: CommandLine, home: Path
) -> None:
    """Following the advice must not found a second installation unawares."""
    said = saltwall.refused("tenant", "list")
    assert f"no database at {home / 'saltwall.db'}: set SALTWALL_HOME" in said
    assert not home.exists()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("[{name:chat}]", "SALTWALL_ENGINES is not JSON; an example: "),
        ('[{"name": "x"}]', "SALTWALL_ENGINES[0].url: Field required; an example: "),
        ('[{"name": "x", "url": "http://[::1]:1", "modles": []}]', "SALTWALL_ENGINES[0].modles: "),
    ],
)
def test_a_bad_list_of_engines_is_explained_by_example(
    saltwall: CommandLine, monkeypatch: pytest.MonkeyPatch, value: str, said: str
) -> None:
    """The variable, the place in it, and how it is written."""
    monkeypatch.setenv("SALTWALL_ENGINES", value)
    assert said in saltwall.refused("tenant", "list")


def test_a_gateway_whose_keyring_is_lost_does_not_start(saltwall: CommandLine, home: Path) -> None:
    """A new keyring could not open the tenants' salts."""
    saltwall.ok("db", "upgrade")
    saltwall.ok("tenant", "create", "acme")
    (home / "keys" / "gateway.json").unlink()
    assert "gateway.json is missing" in saltwall.refused("gateway")


def test_up_refuses_a_flag_before_it_touches_anything(saltwall: CommandLine, home: Path) -> None:
    """No directory, no key, no database."""
    assert "--api-key" in saltwall.refused("up", "--", "--api-key", "x")
    assert not home.exists()


def test_up_names_the_port_that_is_taken(saltwall: CommandLine, home: Path) -> None:
    """And the option that changes it; nothing is created but the directory that it locks."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        line = saltwall.refused("up", "--engine-port", port)
    assert f"port {port}" in line
    assert "--engine-port" in line
    assert [path.name for path in home.iterdir()] == ["up.lock"]


def test_doctor_of_a_new_installation_fails_for_the_database_only(saltwall: CommandLine) -> None:
    """What `up` or a first command makes is a warning; exit code 1 for the rest."""
    result = saltwall("doctor", "--json")
    assert result.code == 1
    found = json.loads(result.out)
    assert [f["subject"] for f in found if f["level"] == "fail"] == ["database"]
    assert {"python", "vllm", "torch", "demo model", "ports", "memory", "disk"} <= {
        f["subject"] for f in found
    }
    (advice,) = [f["message"] for f in found if f["level"] == "fail"]
    assert "saltwall db upgrade" in advice


def test_doctor_is_content_once_there_is_a_database(saltwall: CommandLine) -> None:
    """Keys and database on one disk stay a warning."""
    saltwall.ok("db", "upgrade")
    saltwall.ok("tenant", "create", "acme")
    text = saltwall.ok("doctor")
    assert "fail" not in text
    assert "on one disk" in text


def test_doctor_finds_keys_that_others_can_read(saltwall: CommandLine, home: Path) -> None:
    """The file, and the directory."""
    saltwall.ok("db", "upgrade")
    saltwall.ok("tenant", "create", "acme")
    (home / "keys" / "gateway.json").chmod(0o640)
    (home / "keys").chmod(0o755)
    failed = [f.message for f in doctor.keys(settings()) if f.level == "fail"]
    assert len(failed) == 2
    assert all("chmod" in message for message in failed)


def test_doctor_finds_a_taken_port(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it is our gateway that has it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("SALTWALL_PORT", str(server.getsockname()[1]))
        assert "fail" in [finding.level for finding in doctor.ports(settings())]


def test_doctor_looks_at_the_port_of_an_engine_here(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the engine that has it, so that is no failure; other machines' are not asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        urls = [f"http://127.0.0.1:{port}", "https://gpu-1.internal:8100"]
        engines = [{"name": f"e{i}", "url": url} for i, url in enumerate(urls)]
        monkeypatch.setenv("SALTWALL_ENGINES", json.dumps(engines))
        taken = doctor.ports(settings())
        assert [f.level for f in taken if f.message.startswith(f"{port} is taken")] == ["warn"]
    assert [f.level for f in doctor.ports(settings())] == ["ok"] * 3


def test_doctor_finds_a_damaged_model(home: Path) -> None:
    """A directory without its files is damaged, not missing."""
    (home / "models" / "SmolLM2-135M-Instruct").mkdir(parents=True)
    assert "damaged" in doctor.model(home).message


def test_doctor_does_not_show_a_databases_password(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the driver says."""
    monkeypatch.setenv("SALTWALL_DATABASE_URL", "postgresql://u:hunter2@127.0.0.1:9/x")

    def unreachable(url: str) -> tuple[str | None, str]:
        raise ConnectionError(url)

    found = doctor.database(settings(), unreachable)
    assert found.level == "fail"
    assert "hunter2" not in found.message
