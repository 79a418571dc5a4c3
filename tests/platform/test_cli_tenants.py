"""The commands for tenants, keys and salts, on a real database."""

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_line import CommandLine

from saltwall_platform.cli import salt
from saltwall_platform.cli.duration import moment
from saltwall_tenants import api_keys, audit, salts
from saltwall_tenants.database import Database
from saltwall_tenants.keyring import Keyring


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data directory that the commands use."""
    monkeypatch.setenv("SALTWALL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SALTWALL_DATABASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def saltwall(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    """The command line on a migrated database."""
    run = CommandLine(capsys, monkeypatch)
    run.ok("db", "upgrade")
    return run


def database(home: Path) -> Database:
    """The database that the commands used."""
    return Database(f"sqlite:///{home / 'saltwall.db'}")


def test_a_command_on_a_database_without_schema_says_how_to_make_one(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is created by looking, and the error is one line."""
    home.mkdir()
    run = CommandLine(capsys, monkeypatch)
    assert "saltwall db upgrade" in run.refused("tenant", "list")


def test_db_current_tells_an_empty_database_from_an_upgraded_one(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`current` shows the revision, None before the first upgrade."""
    run = CommandLine(capsys, monkeypatch)
    before = json.loads(run.ok("db", "current", "--json"))
    run.ok("db", "upgrade")
    after = json.loads(run.ok("db", "current", "--json"))
    assert before["revision"] is None
    assert not before["up_to_date"]
    assert after["revision"] == after["head"]
    assert after["up_to_date"]


def test_a_tenant_is_created_listed_shown_suspended_resumed_and_deleted(
    saltwall: CommandLine,
) -> None:
    """The life of a tenant, as JSON."""
    made = json.loads(saltwall.ok("tenant", "create", "acme", "--json"))
    assert made["name"] == "acme"
    assert [t["name"] for t in json.loads(saltwall.ok("tenant", "list", "--json"))] == ["acme"]
    shown = json.loads(saltwall.ok("tenant", "show", "acme", "--json"))
    assert (shown["salt_generation"], shown["active_keys"]) == (1, 0)
    assert json.loads(saltwall.ok("tenant", "suspend", "acme", "--json"))["status"] == "suspended"
    assert json.loads(saltwall.ok("tenant", "resume", "acme", "--json"))["status"] == "active"
    deleted = json.loads(saltwall.ok("tenant", "delete", "acme", "--yes", "--json"))
    assert deleted["status"] == "deleted"
    assert json.loads(saltwall.ok("tenant", "list", "--json")) == []
    assert len(json.loads(saltwall.ok("tenant", "list", "--deleted", "--json"))) == 1


def test_tables_are_for_people(saltwall: CommandLine) -> None:
    """Without --json the same facts come as aligned columns, or a hint when there are none."""
    assert "saltwall tenant create" in saltwall.ok("tenant", "list")
    saltwall.ok("tenant", "create", "acme")
    header, line = saltwall.ok("tenant", "list").splitlines()
    assert header.split()[:2] == ["NAME", "STATUS"]
    assert line.split()[:2] == ["acme", "active"]


def test_deleting_asks_first(saltwall: CommandLine) -> None:
    """Without an answer, and without --yes, nothing is deleted."""
    saltwall.ok("tenant", "create", "acme")
    assert saltwall("tenant", "delete", "acme").code == 1
    assert json.loads(saltwall.ok("tenant", "show", "acme", "--json"))["status"] == "active"


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("tenant", "create", "No Name"), "a-z"),
        (("tenant", "show", "nobody"), "saltwall tenant list"),
        (("key", "create", "nobody"), "saltwall tenant list"),
        (("key", "revoke", "dvBwPXIqd10w"), "saltwall key list"),
        (("salt", "rotate", "nobody"), "saltwall tenant list"),
    ],
)
def test_what_cannot_be_done_is_one_line_that_says_what_to_do(
    saltwall: CommandLine, arguments: tuple[str, ...], advice: str
) -> None:
    """No traceback, exit code 1."""
    assert advice in saltwall.refused(*arguments)


def test_the_second_tenant_of_a_name_is_refused(saltwall: CommandLine) -> None:
    """Names are unique among the living."""
    saltwall.ok("tenant", "create", "acme")
    assert "exists" in saltwall.refused("tenant", "create", "acme")


def test_a_printed_key_authenticates_and_is_not_shown_again(
    saltwall: CommandLine, home: Path
) -> None:
    """The plaintext appears once; the list has public ids only."""
    saltwall.ok("tenant", "create", "acme")
    arguments = ("--label", "ci", "--model", "demo", "--expires", "30d")
    made = json.loads(saltwall.ok("key", "create", "acme", *arguments, "--json"))
    keyring = Keyring.load(home / "keys")

    async def authenticate() -> api_keys.Principal | None:
        storage = database(home)
        async with storage.snapshot() as tx:
            principal = await api_keys.authenticate(tx, keyring, made["key"])
        await storage.dispose()
        return principal

    principal = asyncio.run(authenticate())
    assert principal is not None
    assert (principal.tenant_name, principal.models) == ("acme", frozenset({"demo"}))
    listed = saltwall.ok("key", "list", "acme", "--json") + saltwall.ok("key", "list", "acme")
    assert made["key"] not in listed
    assert made["id"] in listed


def test_a_plain_key_is_all_that_is_printed(saltwall: CommandLine) -> None:
    """So that $(saltwall key create acme --plain) is a key."""
    saltwall.ok("tenant", "create", "acme")
    assert re.fullmatch(r"sw_live_[\w-]+\n", saltwall.ok("key", "create", "acme", "--plain"))


def test_a_revoked_key_is_listed_as_revoked(saltwall: CommandLine) -> None:
    """Revoking goes by public id."""
    saltwall.ok("tenant", "create", "acme")
    made = json.loads(saltwall.ok("key", "create", "acme", "--json"))
    saltwall.ok("key", "revoke", made["id"])
    (listed,) = json.loads(saltwall.ok("key", "list", "acme", "--json"))
    assert listed["revoked_at"] is not None


def test_a_rotation_without_a_gateway_stays_pending_and_says_so(saltwall: CommandLine) -> None:
    """It takes effect when a gateway runs."""
    saltwall.ok("tenant", "create", "acme")
    result = saltwall("salt", "rotate", "acme", "--timeout", "0s", "--json")
    assert json.loads(result.out)["status"] == "pending"
    assert "when a gateway runs" in result.err
    statuses = [s["status"] for s in json.loads(saltwall.ok("salt", "list", "acme", "--json"))]
    assert statuses == ["current", "pending"]
    assert "under way" in saltwall.refused("salt", "rotate", "acme", "--no-wait")


def test_a_rotation_returns_once_a_gateway_has_promoted_it(
    saltwall: CommandLine, home: Path
) -> None:
    """What it waits for is the promotion, by whoever does it."""
    saltwall.ok("tenant", "create", "acme")
    saltwall.ok("salt", "rotate", "acme", "--no-wait")
    pending = salts.SaltGeneration(2, "pending", datetime.now(UTC))

    async def promote() -> None:
        storage = database(home)
        async with storage.transaction() as tx:
            assert await salts.promote(tx, "acme", 2, actor="gateway")
        await storage.dispose()

    asyncio.run(promote())
    found = salt.promoted("acme", pending, timedelta(seconds=10))
    assert found.status == "current"


def test_every_change_names_who_made_it_in_the_audit_log(saltwall: CommandLine, home: Path) -> None:
    """The actor of a command is the user who typed it."""
    saltwall.ok("tenant", "create", "acme")
    saltwall.ok("key", "create", "acme")

    async def events() -> list[audit.AuditEvent]:
        storage = database(home)
        async with storage.snapshot() as tx:
            found = await audit.list_events(tx, limit=10)
        await storage.dispose()
        return list(found)

    assert all(event.actor.startswith("cli:") for event in asyncio.run(events()))


def test_a_lost_keyring_is_not_replaced(saltwall: CommandLine, home: Path) -> None:
    """A new one could not open what the tenants' salts are sealed with."""
    saltwall.ok("tenant", "create", "acme")
    (home / "keys" / "gateway.json").unlink()
    assert "restore it" in saltwall.refused("tenant", "create", "globex")
    assert not (home / "keys" / "gateway.json").exists()


def test_a_keyring_that_others_can_read_is_refused(saltwall: CommandLine, home: Path) -> None:
    """The error names the file and the chmod."""
    saltwall.ok("tenant", "create", "acme")
    (home / "keys" / "gateway.json").chmod(0o644)
    assert "chmod 600" in saltwall.refused("key", "create", "acme")


def test_a_wrong_setting_is_named(saltwall: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable, and never its value: it may hold a password."""
    monkeypatch.setenv("SALTWALL_PORT", "hunter2")
    line = saltwall.refused("tenant", "list")
    assert "SALTWALL_PORT" in line
    assert "hunter2" not in line


def test_a_database_that_does_not_answer_is_said_without_its_password(
    saltwall: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One line, whatever the driver raises."""
    url = f"postgresql://saltwall:hunter2@/saltwall?host={tmp_path}"
    monkeypatch.setenv("SALTWALL_DATABASE_URL", url)
    line = saltwall.refused("tenant", "list")
    assert "SALTWALL_DATABASE_URL" in line
    assert "hunter2" not in line


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("12h", 43_200), ("30d", 2_592_000)]
)
def test_an_expiry_can_be_a_time_span(text: str, seconds: int) -> None:
    """From now, within the time that reading it takes."""
    before = datetime.now(UTC)
    found = moment(text)
    assert before <= found - timedelta(seconds=seconds) <= datetime.now(UTC)


def test_an_expiry_can_be_a_date() -> None:
    """UTC, unless it says otherwise."""
    assert moment("2031-05-01") == datetime(2031, 5, 1, tzinfo=UTC)
    assert moment("2031-05-01T12:00+02:00") == datetime(2031, 5, 1, 10, tzinfo=UTC)


def test_a_senseless_expiry_is_a_usage_error(saltwall: CommandLine) -> None:
    """Exit code 2, and an example of what is meant."""
    saltwall.ok("tenant", "create", "acme")
    result = saltwall("key", "create", "acme", "--expires", "soon")
    assert result.code == 2
    assert "30d" in result.err
