"""Other commands find what `saltwall up` runs, for as long as it does."""

import json
from pathlib import Path

import pytest

from saltwall_platform.cli import session
from saltwall_platform.stack import preflight, running
from saltwall_platform.stack.running import Running, announced, find, location

PORTS = ("SALTWALL_PORT", "SALTWALL_ADMIN_PORT")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory that the commands use."""
    for name in (*PORTS, "SALTWALL_ENGINES", "SALTWALL_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SALTWALL_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def up(home: Path) -> Running:
    """What runs there, on ports that nobody would guess."""
    settings = session.configured(port=7080, admin_port=7081)
    return running.describe(settings, "chat", 7100, "/models/chat")


def test_what_runs_is_found_until_it_ends(home: Path, up: Running) -> None:
    """And not before."""
    with preflight.only_one(home):
        assert find(home) is None
        with announced(home, up):
            assert find(home) == up
        assert find(home) is None
    assert not location(home).exists()


def test_what_a_killed_one_left_behind_is_not_believed(home: Path, up: Running) -> None:
    """Nobody holds the directory any more."""
    with preflight.only_one(home), announced(home, up):
        left = location(home).read_bytes()
    location(home).write_bytes(left)
    assert find(home) is None


def test_only_the_owner_can_read_it_and_there_is_no_secret_in_it(home: Path, up: Running) -> None:
    """It says where, not with what."""
    with announced(home, up):
        assert location(home).stat().st_mode & 0o077 == 0
        assert set(json.loads(location(home).read_text())) == {
            *("host", "port", "admin_host", "admin_port", "engine", "model")
        }


def test_commands_take_ports_and_engine_from_it(home: Path, up: Running) -> None:
    """Where the environment says nothing else."""
    assert session.settings().port == 8080
    with preflight.only_one(home), announced(home, up):
        found = session.settings()
    assert (found.port, found.admin_port) == (7080, 7081)
    assert [(engine.name, engine.url) for engine in found.engines] == [
        ("chat", "http://127.0.0.1:7100")
    ]


def test_the_environment_wins(home: Path, up: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each variable that is set, and only those."""
    monkeypatch.setenv("SALTWALL_PORT", "9080")
    with preflight.only_one(home), announced(home, up):
        found = session.settings()
        assert session.configured().admin_port == 8081
    assert (found.port, found.admin_port) == (9080, 7081)
