"""The commands for the audit log, on a real database."""

import json
import sqlite3
from pathlib import Path

import pytest
from command_line import CommandLine

NAME = "audit-checkpoints.jsonl"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data directory that the commands use."""
    monkeypatch.setenv("SALTWALL_HOME", str(tmp_path))
    monkeypatch.delenv("SALTWALL_DATABASE_URL", raising=False)
    return tmp_path


@pytest.fixture
def saltwall(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    """The command line on a database with three events."""
    run = CommandLine(capsys, monkeypatch)
    run.ok("db", "upgrade")
    run.ok("tenant", "create", "acme")
    run.ok("tenant", "suspend", "acme")
    run.ok("tenant", "resume", "acme")
    return run


def sql(home: Path, statement: str) -> None:
    """What somebody with access to the database does."""
    with sqlite3.connect(home / "saltwall.db") as connection:
        connection.execute(statement)
    connection.close()


def test_events_are_listed_newest_first(saltwall: CommandLine) -> None:
    """For programs with their detail, for people as a table."""
    listed = json.loads(saltwall.ok("log", "list", "--limit", "2", "--json"))
    assert [(e["sequence"], e["action"]) for e in listed] == [
        (3, "tenant.resume"),
        (2, "tenant.suspend"),
    ]
    assert listed[0]["detail"] == {"name": "acme"}
    assert '{"name": "acme"}' in saltwall.ok("log", "list").splitlines()[-1]


def test_each_change_is_signed_at_once(saltwall: CommandLine, home: Path) -> None:
    """So that the log is proven whole, and signing again adds nothing."""
    assert len((home / NAME).read_text().splitlines()) == 3
    saltwall.ok("tenant", "resume", "acme")
    saltwall.ok("log", "checkpoint")
    assert len((home / NAME).read_text().splitlines()) == 3
    assert saltwall.ok("log", "verify", "--anchor", str(home / NAME)).startswith("whole: 3 events")


def test_without_the_newest_checkpoint_the_rest_is_unproven(
    saltwall: CommandLine, home: Path
) -> None:
    """Exit code 2, and how many events are proven."""
    out = home / "elsewhere.jsonl"
    saltwall.ok("log", "checkpoint", "--out", str(out))
    saltwall.ok("tenant", "suspend", "acme")
    found = saltwall("log", "verify", "--anchor", str(out), "--json")
    assert found.code == 2
    assert json.loads(found.out) == {
        "verdict": "unproven",
        "events": 4,
        "proven": 3,
        "problems": [],
    }
    found = saltwall("log", "verify")
    assert (found.code, found.out.split(":")[0]) == (2, "unproven")
    assert f"--anchor FILE, a copy of {home / NAME}" in found.out


def test_tampering_is_said_with_kind_and_place(saltwall: CommandLine, home: Path) -> None:
    """Exit code 1."""
    sql(home, "DELETE FROM audit_events WHERE sequence > 1")
    sql(home, "UPDATE audit_events SET detail = '{}'")
    found = saltwall("log", "verify", "--anchor", str(home / NAME))
    assert found.code == 1
    assert found.out.splitlines() == [
        "tampered: edited at 1",
        "tampered: truncated at 2",
        "tampered: truncated at 3",
    ]


def test_a_log_that_was_cut_is_not_signed(saltwall: CommandLine, home: Path) -> None:
    """A change on top of it stands, and says so; signing it is refused."""
    sql(home, "DELETE FROM audit_events WHERE sequence = 3")
    before = (home / NAME).read_text()
    result = saltwall("tenant", "suspend", "acme")
    assert result.code == 0
    assert "done, but the audit log has no new checkpoint: " in result.err
    assert "log verify" in saltwall.refused("log", "checkpoint")
    assert (home / NAME).read_text() == before


def test_a_public_key_is_enough_to_verify(saltwall: CommandLine, home: Path) -> None:
    """The one that is printed; another, or none, proves nothing."""
    key = json.loads(saltwall.ok("log", "checkpoint", "--json"))["key"]
    (home / "keys" / "audit.json").unlink()
    verify = ("log", "verify", "--anchor", str(home / NAME))
    saltwall.ok(*verify, "--key", key)
    found = saltwall(*verify)
    assert (found.code, "audit.json" in found.err) == (2, True)
    found = saltwall(*verify, "--key", "A" * 43)
    assert (found.code, "another log" in found.out) == (1, True)
    assert saltwall(*verify, "--key", "short").code == 2
    assert "restore it" in saltwall.refused("log", "checkpoint")


def test_what_holds_no_checkpoints_accuses_nobody(saltwall: CommandLine, home: Path) -> None:
    """Exit code 2 and one line with the place: another file, half a copy, none, one not there."""
    whole = (home / NAME).read_text()
    (home / "empty").touch()
    (home / "notes").write_text("\nRead me.\nAnd me.\n")
    (home / "cut").write_text(whole[:-50])
    for name, place in (("empty", ""), ("nowhere", ""), ("notes", ":2"), ("cut", ":3")):
        found = saltwall("log", "verify", "--anchor", str(home / name))
        assert (found.code, found.out, len(found.err.splitlines())) == (2, "", 1)
        assert f"{home / name}{place}" in found.err


def test_a_log_that_cannot_be_read_accuses_nobody(saltwall: CommandLine, home: Path) -> None:
    """Exit code 1 is for tampering alone."""
    (home / "saltwall.db").unlink()
    found = saltwall("log", "verify", "--anchor", str(home / NAME))
    assert (found.code, "there is no database" in found.err) == (2, True)
