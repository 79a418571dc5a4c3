"""`saltwall engine`, from a pasted command to the process that replaces it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine

from saltwall_tenants.keyring import Keyring
from saltwall_tenants.wire import EngineKeys


@pytest.fixture
def saltwall(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    """The command line on an empty data directory."""
    monkeypatch.setenv("SALTWALL_HOME", str(tmp_path))
    return CommandLine(capsys, monkeypatch)


def test_print_shows_the_exact_command_and_runs_nothing(
    saltwall: CommandLine, tmp_path: Path
) -> None:
    """No key is needed, none is made, and none is shown."""
    line = saltwall.ok("engine", "--print", "--", "vllm", "serve", "org/m", "-tp", "2")
    assert line.startswith("env -u PYTHONHASHSEED ")
    assert "--model org/m -tp 2" in line
    assert f"SALTWALL_ENGINE_KEYS={tmp_path}/keys/engine-org%2Fm.json" in line
    assert list(tmp_path.iterdir()) == []


def test_a_refused_flag_is_one_line(saltwall: CommandLine) -> None:
    """Even with --print."""
    line = saltwall.refused("engine", "--print", "--", "org/m", "--trust-remote-code")
    assert line.startswith("saltwall: --trust-remote-code is refused")


def test_write_keys_makes_the_file_to_copy(saltwall: CommandLine, tmp_path: Path) -> None:
    """Its path is all that is printed."""
    keyring = Keyring.create(tmp_path / "keys")
    path = Path(saltwall.ok("engine", "--name", "chat", "--write-keys").strip())
    assert EngineKeys.read(path) == keyring.ticket_root.engine_keys("chat")


def test_without_keys_the_engine_does_not_start(saltwall: CommandLine) -> None:
    """It says what to run on the gateway's machine."""
    line = saltwall.refused("engine", "--name", "chat", "--", "org/m")
    assert "saltwall engine --name chat --write-keys" in line


def test_the_engine_takes_the_place_of_the_command(tmp_path: Path) -> None:
    """One process: a stand-in for the vLLM package reports how it was called."""
    Keyring.create(tmp_path / "keys")
    package = tmp_path / "site" / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    for directory in (package, package.parent, package.parent.parent):
        (directory / "__init__.py").touch()
    report = (
        "import json, os, sys; print(json.dumps([os.getpid(), sys.argv[1:], dict(os.environ)]))"
    )
    (package / "api_server.py").write_text(report)
    environ = {**os.environ, "SALTWALL_HOME": str(tmp_path), "PYTHONHASHSEED": "7"}
    environ["PYTHONPATH"] = str(tmp_path / "site")
    process = subprocess.Popen(
        [sys.executable, "-m", "saltwall_platform.cli", "engine", "--", "org/m", "--port", "8111"],
        env=environ,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    out, _ = process.communicate()
    assert process.returncode == 0
    pid, arguments, reached = json.loads(out)
    assert pid == process.pid
    assert arguments[:4] == ["--model", "org/m", "--port", "8111"]
    assert "PYTHONHASHSEED" not in reached
    assert reached["VLLM_PLUGINS"] == "saltwall"
    assert Path(reached["SALTWALL_ENGINE_KEYS"]).stat().st_mode & 0o777 == 0o600
    secret = EngineKeys.read(Path(reached["SALTWALL_ENGINE_KEYS"])).control
    assert secret not in out
