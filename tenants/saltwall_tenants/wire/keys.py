"""The keys a gateway derives and an engine holds (table in the design's section on tickets)."""

import json
import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from saltwall_tenants.wire.encoding import b64decode, b64encode, cbor
from saltwall_tenants.wire.errors import WireError

KEY_BYTES = 32


class KeyFileError(Exception):
    """A key file cannot be used; the message names the file and the remedy, never its content."""


def hkdf(secret: bytes, info: bytes, size: int = KEY_BYTES) -> bytes:
    """HKDF-SHA256 (RFC 5869) without an HKDF salt."""
    return HKDF(algorithm=SHA256(), length=size, salt=None, info=info).derive(secret)


@dataclass(frozen=True)
class EngineKeys:
    """All secrets of one engine (one model deployment called `name`).

    `tickets` and `seals` map a key id (0-255) to 32 bytes; `control` is the bearer secret of the
    engine's control routes. The engine accepts every key id here; the gateway uses the newest.
    """

    name: str
    tickets: Mapping[int, bytes] = field(repr=False)
    seals: Mapping[int, bytes] = field(repr=False)
    control: str = field(repr=False)

    def write(self, path: Path) -> None:
        """Writes the file that `saltwall engine` hands to vLLM by path: new, or replaced, 0600."""
        document = {
            "version": 1,
            "name": self.name,
            "tickets": {str(i): b64encode(key) for i, key in self.tickets.items()},
            "seals": {str(i): b64encode(key) for i, key in self.seals.items()},
            "control": self.control,
        }
        write_private(path, json.dumps(document, indent=1).encode())

    @classmethod
    def read(cls, path: Path) -> "EngineKeys":
        """Reads that file.

        Raises:
            KeyFileError: it is missing, readable by others, or not such a file.
        """
        try:
            document = json.loads(read_private(path))
            if document["version"] != 1:
                raise KeyFileError(f"{path}: version is not 1; make it anew with this release")
            keys = cls(
                name=str(document["name"]),
                tickets={int(i): b64decode(k, KEY_BYTES) for i, k in document["tickets"].items()},
                seals={int(i): b64decode(k, KEY_BYTES) for i, k in document["seals"].items()},
                control=str(document["control"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, WireError):
            raise KeyFileError(f"{path} is not an engine key file; make it anew") from None
        if not keys.name or not keys.tickets or set(keys.tickets) != set(keys.seals):
            raise KeyFileError(f"{path} lacks a name, or a seal key for each ticket key")
        if len(keys.control) < KEY_BYTES or any(not 0 <= i <= 255 for i in keys.tickets):
            raise KeyFileError(f"{path} has a short control secret or a key id above 255")
        return keys


@dataclass(frozen=True)
class TicketRoot:
    """The gateway's secret from which each engine's keys are derived."""

    secret: bytes = field(repr=False)
    key_ids: tuple[int, ...] = (1,)

    def engine_keys(self, name: str) -> EngineKeys:
        """Derives the keys of the engine called `name`, for every live key id."""

        def derived(purpose: str) -> dict[int, bytes]:
            return {i: hkdf(self.secret, cbor([purpose, name, i])) for i in self.key_ids}

        control = hkdf(self.secret, cbor(["saltwall/control-secret/1", name]))
        return EngineKeys(
            name=name,
            tickets=derived("saltwall/ticket-key/1"),
            seals=derived("saltwall/seal-key/1"),
            control=b64encode(control),
        )


def write_private(path: Path, data: bytes) -> None:
    """Writes a secret so that no other user can read it, and no crash leaves half of it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def create_private(path: Path, data: bytes) -> None:
    """Writes a secret in the same way, where there is none.

    Raises:
        FileExistsError: there is one, and it is left alone.
    """
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    write_private(fresh, data)
    try:
        os.link(fresh, path)  # unlike a rename, fails if another process was first
    finally:
        fresh.unlink()


def read_private(path: Path) -> bytes:
    """Reads a secret.

    Raises:
        KeyFileError: it is missing, or other users may read it.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_IMODE(mode) & 0o077:
                raise KeyFileError(f"{path} can be read by other users: chmod 600 {path}")
            return file.read()
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror}") from None
