"""An engine's keys: derived, written for it alone, read back or refused."""

import json
import os
import stat
from pathlib import Path

import cbor2
import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from saltwall_tenants.wire import EngineKeys, KeyFileError, TicketRoot
from saltwall_tenants.wire.keys import write_private

ROOT = TicketRoot(bytes(range(32)), key_ids=(1, 2))
KEYS = ROOT.engine_keys("demo")


def test_ticket_key_is_that_of_the_design() -> None:
    """HKDF(ticket root, CBOR["saltwall/ticket-key/1", name, key_id])."""
    info = cbor2.dumps(["saltwall/ticket-key/1", "demo", 2], canonical=True)
    expected = HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(ROOT.secret)
    assert KEYS.tickets[2] == expected


def test_all_derived_keys_differ() -> None:
    """No two purposes, key ids, engines or roots share a key."""
    others = [KEYS, ROOT.engine_keys("other"), TicketRoot(bytes(32), (1, 2)).engine_keys("demo")]
    secrets = [s for k in others for s in (*k.tickets.values(), *k.seals.values(), k.control)]
    assert len(set(secrets)) == 15


def test_keys_are_derived_again_the_same() -> None:
    """A gateway that restarts finds the engine's keys again."""
    assert TicketRoot(bytes(range(32)), (1, 2)).engine_keys("demo") == KEYS


def test_file_reads_back_and_is_private(tmp_path: Path) -> None:
    """What was written is read; nobody else may read it; nothing else is left beside it."""
    path = tmp_path / "keys" / "engine-demo.json"
    KEYS.write(path)
    assert EngineKeys.read(path) == KEYS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_file_is_replaced_whole(tmp_path: Path) -> None:
    """Writing again replaces the file, and makes it private if it was not."""
    path = tmp_path / "engine.json"
    path.write_text("old")
    path.chmod(0o644)
    KEYS.write(path)
    assert EngineKeys.read(path) == KEYS


def test_leftover_of_a_crash_is_no_obstacle(tmp_path: Path) -> None:
    """In a container the process id repeats: a temporary file of a crashed run must not block."""
    path = tmp_path / "secret"
    write_private(path, b"first")
    for stray in (f".secret.{os.getpid()}", ".secret.1", ".secret."):
        (tmp_path / stray).write_bytes(b"stray")
    write_private(path, b"second")
    assert path.read_bytes() == b"second"


def test_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """When writing fails, the old file is untouched and nothing is left beside it."""
    path = tmp_path / "secret"
    write_private(path, b"first")
    with pytest.raises(TypeError):
        write_private(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o610])
def test_file_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    """Any permission for others, with the command that helps."""
    path = tmp_path / "engine.json"
    KEYS.write(path)
    path.chmod(mode)
    with pytest.raises(KeyFileError, match=f"chmod 600 {path}"):
        EngineKeys.read(path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(KeyFileError, match=r"nowhere\.json: No such file"):
        EngineKeys.read(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": None},
        {"name": ""},
        {"tickets": {}},
        {"tickets": []},
        {"tickets": {"1": "c2hvcnQ"}},
        {"tickets": {"x": "A" * 43}},
        {"tickets": {"1": "A" * 43}},
        {"tickets": {"256": "A" * 43}, "seals": {"256": "A" * 43}},
        {"tickets": {"-1": "A" * 43}, "seals": {"-1": "A" * 43}},
        {"seals": {}},
        {"seals": None},
        {"control": "short"},
    ],
)
def test_damaged_file_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    """A wrong field anywhere is an error that names the file, and shows none of it."""
    path = tmp_path / "engine.json"
    KEYS.write(path)
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | change))
    with pytest.raises(KeyFileError, match=r"engine\.json") as refusal:
        EngineKeys.read(path)
    assert document["control"] not in str(refusal.value)


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[]", b"7", b"\xff"])
def test_other_content_is_refused(tmp_path: Path, content: bytes) -> None:
    """Anything else is no key file, and no crash."""
    path = tmp_path / "engine.json"
    write_private(path, content)
    with pytest.raises(KeyFileError, match="not an engine key file"):
        EngineKeys.read(path)
