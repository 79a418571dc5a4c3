"""Checkpoints of the audit log: what is signed is what is read, and nothing else passes."""

import json
import stat
from pathlib import Path

import pytest

from saltwall_tenants import audit, audit_checkpoints
from saltwall_tenants.audit_chain import Kind, contradicted
from saltwall_tenants.audit_checkpoints import FILE_NAME, Checkpoint, SigningKey
from saltwall_tenants.database import Database
from saltwall_tenants.errors import Conflict, Invalid
from saltwall_tenants.wire import KeyFileError

KEY, OTHER = SigningKey(b"k" * 32), SigningKey(b"o" * 32)
HASHES = {0: audit.GENESIS, 1: b"1" * 32, 2: b"2" * 32}
SIGNED = KEY.sign(2, HASHES[2])


def test_a_checkpoint_reads_back(tmp_path: Path) -> None:
    """Line by line, in a file for its owner alone."""
    path = tmp_path / "checkpoints"
    first = KEY.sign(1, HASHES[1])
    audit_checkpoints.append(path, first)
    audit_checkpoints.append(path, SIGNED)
    assert audit_checkpoints.read(path) == [first, SIGNED]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert audit_checkpoints.newest(path, KEY) == SIGNED


@pytest.mark.parametrize(
    ("checkpoint", "kind"),
    [
        (SIGNED._replace(position=1), Kind.BAD_SIGNATURE),
        (SIGNED._replace(hash=HASHES[1]), Kind.BAD_SIGNATURE),
        (SIGNED._replace(key=OTHER.public), Kind.BAD_SIGNATURE),
        (SIGNED._replace(at=OTHER.sign(2, b"").at), Kind.BAD_SIGNATURE),
        (SIGNED._replace(signature=bytes(64)), Kind.BAD_SIGNATURE),
        (OTHER.sign(2, HASHES[2]), Kind.FOREIGN),
        (KEY.sign(3, b"3" * 32), Kind.TRUNCATED),
        (KEY.sign(2, HASHES[1]), Kind.REWRITTEN),
    ],
)
def test_what_contradicts_the_log_is_named(checkpoint: Checkpoint, kind: Kind) -> None:
    """Each kind, also beside one that agrees."""
    assert contradicted(HASHES, [SIGNED], KEY.public) == []
    found = contradicted(HASHES, [SIGNED, checkpoint], KEY.public)
    assert [problem.kind for problem in found] == [kind]


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"position": True}, {"hash": "x"}, {"at": "2026-01-01"}, {"key": 7}, None],
)
def test_other_lines_are_no_checkpoints(change: dict[str, object] | None) -> None:
    """A wrong field anywhere, or half a line."""
    line = json.dumps(SIGNED.document() | (change or {}))
    assert Checkpoint.parse(line if change else line[:50]) is None


@pytest.mark.parametrize("line", ["Read me.", json.dumps(SIGNED.document())[:-9]])
def test_a_file_with_another_line_is_refused_with_its_place(tmp_path: Path, line: str) -> None:
    """It is another file, or half a copy; it cannot be gone on with either."""
    path = tmp_path / "checkpoints"
    audit_checkpoints.append(path, SIGNED)
    with path.open("a") as file:
        file.write(f"\n{line}")
    with pytest.raises(Invalid, match=f"{path}:3 is not a checkpoint"):
        audit_checkpoints.read(path)
    with pytest.raises(Conflict, match="move it"):
        audit_checkpoints.newest(path, KEY)


async def test_a_log_that_does_not_go_on_is_not_signed(db: Database) -> None:
    """What was signed must be in it still; an unchanged log is not signed again."""
    async with db.transaction() as tx:
        await audit.record(tx, actor="a", action="b", subject="c", detail={})
        made = await audit_checkpoints.make(tx, KEY, None)
        assert await audit_checkpoints.make(tx, KEY, made) is made
        for other in (KEY.sign(1, bytes(32)), KEY.sign(2, made.hash)):
            with pytest.raises(Conflict, match="log verify"):
                await audit_checkpoints.make(tx, KEY, other)


def test_a_file_that_another_has_signed_is_not_gone_on_with(tmp_path: Path) -> None:
    """Its owner moves it away."""
    audit_checkpoints.append(tmp_path / "checkpoints", OTHER.sign(1, HASHES[1]))
    with pytest.raises(Conflict, match="move it"):
        audit_checkpoints.newest(tmp_path / "checkpoints", KEY)


def test_the_signing_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    """And is in no representation."""
    made = SigningKey.load_or_create(tmp_path)
    assert SigningKey.load_or_create(tmp_path) == made != KEY
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    assert str(made.secret) not in repr(made)
    (tmp_path / FILE_NAME).write_text("{}")
    with pytest.raises(KeyFileError, match="not a signing key"):
        SigningKey.load_or_create(tmp_path)
