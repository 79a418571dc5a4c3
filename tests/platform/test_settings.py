"""Settings: what they default to, what they refuse, and that the manual says the same."""

import json
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from saltwall_platform.settings import Settings, settings_table

README = Path(__file__).parents[2] / "platform" / "README.md"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    for name in Settings.model_fields:
        monkeypatch.delenv(f"SALTWALL_{name.upper()}", raising=False)


def test_everything_lives_in_the_data_directory_unless_told_otherwise(tmp_path):
    settings = Settings(home=tmp_path)
    assert settings.keys_dir == tmp_path / "keys"
    assert settings.database_url == f"sqlite:///{tmp_path}/saltwall.db"
    assert Settings(home=tmp_path, keys_dir=tmp_path / "k").keys_dir == tmp_path / "k"


def test_the_data_directory_does_not_move_with_the_working_directory():
    assert Settings().home.is_absolute()


def test_the_environment_sets_engines_as_json(monkeypatch):
    engines = [
        {"name": "big", "url": "http://127.0.0.1:8100/", "models": ["big", "adapter"]},
        {"name": "big", "url": "https://gpu-2.example:8100", "models": ["big"]},
        {"name": "small", "url": "http://[::1]:8101"},
    ]
    monkeypatch.setenv("SALTWALL_ENGINES", json.dumps(engines))
    big, replica, small = Settings().engines
    assert big.url == "http://127.0.0.1:8100"
    assert big.models == ("big", "adapter")
    assert replica.models == ("big",)
    assert small.models == ("small",)


def test_an_empty_variable_is_no_setting(monkeypatch):
    monkeypatch.setenv("SALTWALL_KEYS_DIR", "")
    assert Settings().keys_dir.name == "keys"


EVERYWHERE = "0.0.0.0"  # noqa: S104 - to see it refused


@pytest.mark.parametrize("host", [EVERYWHERE, "::", "192.0.2.1", "example.com", "127.0.0.1.nip.io"])
def test_the_admin_listener_refuses_to_leave_loopback(host):
    with pytest.raises(ValidationError, match="loopback only"):
        Settings(admin_host=host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_the_admin_listener_binds_to_loopback(host):
    assert Settings(admin_host=host).admin_host == host


@pytest.mark.parametrize(
    ("engines", "why"),
    [
        ([], "at least one"),
        ([{"name": "a", "url": "ftp://127.0.0.1"}], "http://HOST:PORT"),
        ([{"name": "a", "url": "http://127.0.0.1:1/v1"}], "no user, path"),
        ([{"name": "a", "url": "http://u@127.0.0.1:1"}], "no user, path"),
        ([{"name": "a", "url": "http://gpu.example:1"}], "needs https"),
        ([{"name": "a", "url": "http://127.0.0.1:1"}] * 2, "one url"),
        (
            [
                {"name": "a", "url": "http://127.0.0.1:1", "models": ["m"]},
                {"name": "b", "url": "http://127.0.0.1:2", "models": ["m"]},
            ],
            "two deployments",
        ),
    ],
)
def test_engines_that_cannot_work_are_refused(engines, why):
    with pytest.raises(ValidationError, match=why):
        Settings(engines=engines)


def test_a_database_password_is_not_shown():
    settings = Settings(database_url="postgresql://u:hunter2@db/x")
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings)


def test_the_table_has_every_setting_and_the_manual_has_the_table():
    table = settings_table()
    for name in Settings.model_fields:
        assert f"| `SALTWALL_{name.upper()}` |" in table
    assert all(re.match(r"\|.*\|.*\|.+\|$", line) for line in table.splitlines())
    assert table in README.read_text()
