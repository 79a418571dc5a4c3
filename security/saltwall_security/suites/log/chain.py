"""The log's hashes and checkpoints as an attacker makes them, without the signing key."""

import base64
import hashlib
import json
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import cbor2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ROWS = "SELECT sequence, at, actor, action, subject, detail, hash FROM audit_events"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def relink(log: sqlite3.Connection, start: int) -> None:
    """Computes the hashes of all events from `start` on, as whoever wrote them would have."""
    before = log.execute(
        "SELECT hash FROM audit_events WHERE sequence = ?", (start - 1,)
    ).fetchone()
    previous = before[0] if before else bytes(32)
    for row in log.execute(f"{ROWS} WHERE sequence >= ? ORDER BY sequence", (start,)).fetchall():
        previous = _hash(previous, row)
        log.execute("UPDATE audit_events SET hash = ? WHERE sequence = ?", (previous, row[0]))


def is_known(log: sqlite3.Connection) -> bool:
    """Whether that is how this log's hashes are made, so that an attack by it means something."""
    previous = bytes(32)
    for row in log.execute(f"{ROWS} ORDER BY sequence"):
        if row[6] != _hash(previous, row):
            return False
        previous = row[6]
    return True


def with_old_signature(anchor: Path, log: sqlite3.Connection, to: Path) -> None:
    """The last checkpoint, for the log as it is now."""
    found = _last(anchor) | _head(log)
    to.write_text(json.dumps(found) + "\n")


def with_own_key(anchor: Path, log: sqlite3.Connection, to: Path) -> None:
    """The same, signed well, by somebody else."""
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    found = _last(anchor) | _head(log) | {"key": _base64(public)}
    at = _microseconds(datetime.fromisoformat(found["at"]))
    fields = [found["position"], bytes.fromhex(found["hash"]), at, public]
    signed = cbor2.dumps(["saltwall/audit-checkpoint/1", *fields], canonical=True)
    to.write_text(json.dumps(found | {"signature": _base64(key.sign(signed))}) + "\n")


def _head(log: sqlite3.Connection) -> dict[str, Any]:
    row = log.execute(f"{ROWS} ORDER BY sequence DESC LIMIT 1").fetchone()
    return {"position": row[0], "hash": row[6].hex()}


def _last(anchor: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(anchor.read_text().splitlines()[-1])
    return found


def _hash(previous: bytes, row: tuple[Any, ...]) -> bytes:
    at = _microseconds(datetime.fromisoformat(row[1]).replace(tzinfo=UTC))
    event = [previous, row[0], at, *row[2:5], json.loads(row[5])]
    return hashlib.sha256(cbor2.dumps(["saltwall/audit-event/1", *event], canonical=True)).digest()


def _microseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
