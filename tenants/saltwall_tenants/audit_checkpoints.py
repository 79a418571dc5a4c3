"""Signed checkpoints of the audit log (Ed25519), in a file outside the database."""

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_tenants import audit
from saltwall_tenants.clock import utc_now
from saltwall_tenants.errors import Conflict, Invalid
from saltwall_tenants.models import AuditEventRow
from saltwall_tenants.wire import KeyFileError, WireError
from saltwall_tenants.wire.encoding import b64decode, b64encode, cbor
from saltwall_tenants.wire.keys import KEY_BYTES, create_private, read_private

FILE_NAME = "audit.json"
_SIGNATURE_BYTES = 64


class Checkpoint(NamedTuple):
    """That the log's event at `position` had this hash at that time; position 0: no event yet.

    `key` is the signer's public key (32 bytes), and its name. Nothing of it is secret.
    """

    position: int
    hash: bytes
    at: datetime
    key: bytes
    signature: bytes = b""

    def signed(self) -> bytes:
        """What the signature is over."""
        fields = [self.position, self.hash, audit.microseconds(self.at), self.key]
        return cbor(["saltwall/audit-checkpoint/1", *fields])

    def is_genuine(self) -> bool:
        """Whether `key` has signed it."""
        try:
            Ed25519PublicKey.from_public_bytes(self.key).verify(self.signature, self.signed())
        except (InvalidSignature, ValueError):
            return False
        return True

    def document(self) -> dict[str, Any]:
        """It as a line of the file has it."""
        return {
            "version": 1,
            "position": self.position,
            "hash": self.hash.hex(),
            "at": self.at.isoformat(),
            "key": b64encode(self.key),
            "signature": b64encode(self.signature),
        }

    @classmethod
    def parse(cls, line: str) -> "Checkpoint | None":
        """Reads a line; None if it is no checkpoint."""
        try:
            found = json.loads(line)
            at = datetime.fromisoformat(found["at"])
            if found["version"] != 1 or type(found["position"]) is not int or at.tzinfo is None:
                return None
            return cls(
                found["position"],
                bytes.fromhex(found["hash"]),
                at,
                b64decode(found["key"], KEY_BYTES),
                b64decode(found["signature"], _SIGNATURE_BYTES),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, WireError):
            return None


@dataclass(frozen=True)
class SigningKey:
    """What checkpoints are signed with, in `keys/audit.json`, never in the database."""

    secret: bytes = field(repr=False)

    @classmethod
    def load_or_create(cls, directory: Path) -> "SigningKey":
        """Reads it, or makes it if there is none; safe in several processes at once."""
        path = directory / FILE_NAME
        if not path.exists():
            fresh = {"version": 1, "private": b64encode(os.urandom(KEY_BYTES))}
            with suppress(FileExistsError):  # another process made it in the meantime
                create_private(path, json.dumps(fresh, indent=1).encode())
        return cls.load(directory)

    @classmethod
    def load(cls, directory: Path) -> "SigningKey":
        """Reads it.

        Raises:
            KeyFileError: the file is missing, readable by others, or not such a file.
        """
        path = directory / FILE_NAME
        try:
            found = json.loads(read_private(path))
            if found["version"] != 1:
                raise ValueError("another version")
            return cls(b64decode(found["private"], KEY_BYTES))
        except (ValueError, KeyError, TypeError, AttributeError, WireError):
            raise KeyFileError(f"{path} is not a signing key; restore it from backup") from None

    @property
    def public(self) -> bytes:
        """The public key (32 bytes)."""
        return self._key().public_key().public_bytes_raw()

    def sign(self, position: int, head: bytes) -> Checkpoint:
        """A checkpoint of now."""
        made = Checkpoint(position, head, utc_now(), self.public)
        return made._replace(signature=self._key().sign(made.signed()))

    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.secret)


def read(path: Path) -> list[Checkpoint]:
    """The checkpoints in a file, a line each.

    Raises:
        Invalid: a line is none; the message says which.
    """
    found = []
    for number, line in enumerate(_lines(path), start=1):
        if line.strip():
            checkpoint = Checkpoint.parse(line)
            if checkpoint is None:
                raise Invalid(
                    f"{path}:{number} is not a checkpoint, or not a whole one: give what `saltwall"
                    " log checkpoint` has written, copied again if it was cut off"
                )
            found.append(checkpoint)
    return found


def newest(path: Path, key: SigningKey) -> Checkpoint | None:
    """The last checkpoint in our own file; None where there is none yet.

    Raises:
        Conflict: somebody else wrote it.
    """
    lines = [line for line in _lines(path) if line.strip()] if path.exists() else []
    if not lines:
        return None
    last = Checkpoint.parse(lines[-1])
    if last is None or last.key != key.public or not last.is_genuine():
        raise Conflict(f"{path} ends with a checkpoint that {FILE_NAME} has not signed: move it")
    return last


async def make(tx: AsyncSession, key: SigningKey, last: Checkpoint | None) -> Checkpoint:
    """Signs the log's newest event; `last` itself if nothing was added since.

    Raises:
        Conflict: the log does not go on from `last`. To sign it all the same would make what was
            done to it look right.
    """
    if last is not None and await _hash_at(tx, last.position) != last.hash:
        raise Conflict(
            f"the audit log is not the one whose event {last.position} was signed: look at it with"
            " `saltwall log verify --anchor FILE`"
        )
    position, head = await audit.head(tx)
    return last if last is not None and last.position == position else key.sign(position, head)


def append(path: Path, checkpoint: Checkpoint) -> None:
    """Adds a line to the file, on the disk when it returns."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(json.dumps(checkpoint.document()).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines()


async def _hash_at(tx: AsyncSession, position: int) -> bytes | None:
    if position == 0:
        return audit.GENESIS
    query = select(AuditEventRow.hash).where(AuditEventRow.sequence == position)
    return (await tx.execute(query)).scalar_one_or_none()
