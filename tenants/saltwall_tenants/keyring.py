"""The gateway's secrets, in one private file beside the database, never inside it."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from saltwall_tenants.errors import Invalid
from saltwall_tenants.wire import KeyFileError, TicketRoot, WireError
from saltwall_tenants.wire.encoding import b64decode, b64encode
from saltwall_tenants.wire.keys import KEY_BYTES, create_private, read_private

FILE_NAME = "gateway.json"


@dataclass(frozen=True)
class Keyring:
    """Key-encryption keys by id, peppers by version, and the root of all engines' keys.

    New secrets are sealed with the current one of each; the others still open old ones.
    """

    keks: Mapping[str, bytes] = field(repr=False)
    current_kek: str
    peppers: Mapping[int, bytes] = field(repr=False)
    current_pepper: int
    ticket_root: TicketRoot

    @classmethod
    def create(cls, directory: Path) -> "Keyring":
        """Makes new secrets and writes them to `directory`.

        Raises:
            KeyFileError: secrets are there already, and are never overwritten.
        """
        kek_id = f"kek-{secrets.token_hex(4)}"  # two keyrings never share one: see the envelope
        keyring = cls(
            keks={kek_id: secrets.token_bytes(KEY_BYTES)},
            current_kek=kek_id,
            peppers={1: secrets.token_bytes(KEY_BYTES)},
            current_pepper=1,
            ticket_root=TicketRoot(secrets.token_bytes(KEY_BYTES)),
        )
        path = directory / FILE_NAME
        try:
            create_private(path, keyring._encode())
        except FileExistsError:
            raise KeyFileError(
                f"{path} exists; without it every tenant's salts and keys are lost, so move it away"
                " yourself if that is what you want"
            ) from None
        return keyring

    @classmethod
    def load(cls, directory: Path) -> "Keyring":
        """Reads the secrets.

        Raises:
            KeyFileError: the file is missing, readable by others, or not such a file.
        """
        path = directory / FILE_NAME
        try:
            return cls._decode(json.loads(read_private(path)))
        except (ValueError, KeyError, TypeError, AttributeError, WireError):
            raise KeyFileError(f"{path} is not a keyring; restore it from your backup") from None

    @classmethod
    def load_or_create(cls, directory: Path) -> "Keyring":
        """Reads the secrets, or makes them if there are none; safe in several processes at once."""
        if not (directory / FILE_NAME).exists():
            try:
                return cls.create(directory)
            except KeyFileError:
                pass  # another process made them in the meantime
        return cls.load(directory)

    def _encode(self) -> bytes:
        document = {
            "version": 1,
            "keks": {name: b64encode(key) for name, key in self.keks.items()},
            "current_kek": self.current_kek,
            "peppers": {str(version): b64encode(key) for version, key in self.peppers.items()},
            "current_pepper": self.current_pepper,
            "ticket_root": b64encode(self.ticket_root.secret),
            "ticket_key_ids": list(self.ticket_root.key_ids),
        }
        return json.dumps(document, indent=1).encode()

    @classmethod
    def _decode(cls, document: Any) -> "Keyring":
        keyring = cls(
            keks={str(i): b64decode(key, KEY_BYTES) for i, key in document["keks"].items()},
            current_kek=document["current_kek"],
            peppers={int(i): b64decode(key, KEY_BYTES) for i, key in document["peppers"].items()},
            current_pepper=document["current_pepper"],
            ticket_root=TicketRoot(
                b64decode(document["ticket_root"], KEY_BYTES),
                tuple(int(i) for i in document["ticket_key_ids"]),
            ),
        )
        ids = keyring.ticket_root.key_ids
        if document["version"] != 1 or not ids or not all(0 <= i <= 255 for i in ids):
            raise ValueError("another version, or no ticket key")
        if keyring.current_kek not in keyring.keks or keyring.current_pepper not in keyring.peppers:
            raise ValueError("a current key is missing")
        return keyring


def write_engine_keys(directory: Path, name: str, keyring: Keyring) -> Path:
    """Writes the key file of the engine called `name`; returns its path."""
    if not name:
        raise Invalid("an engine needs a name")
    path = directory / f"engine-{quote(name, safe='')}.json"  # one name, one file; no slash
    keyring.ticket_root.engine_keys(name).write(path)
    return path
