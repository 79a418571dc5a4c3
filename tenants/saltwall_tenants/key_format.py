"""How an API key is written: `sw_live_<12 public>_<43 secret><6 CRC32>`, all base62."""

import secrets
import string
import zlib
from dataclasses import dataclass, field

PREFIX = "sw_live_"
PUBLIC_CHARS = 12
SECRET_CHARS = 43  # 62**43 > 2**256
_CHECK_CHARS = 6
_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_CHARS = len(PREFIX) + PUBLIC_CHARS + 1 + SECRET_CHARS + _CHECK_CHARS


@dataclass(frozen=True)
class KeyParts:
    """A well-formed key: the id it is found by, and the secret that proves it."""

    public_id: str
    secret: str = field(repr=False)


def is_public_id(text: str) -> bool:
    """Whether a key could be found by this text."""
    return len(text) == PUBLIC_CHARS and text.isascii() and text.isalnum()


def new_parts() -> KeyParts:
    """Random parts of a new key."""
    return KeyParts(_random(PUBLIC_CHARS), _random(SECRET_CHARS))


def write(parts: KeyParts) -> str:
    """The key as its owner gets it. The checksum lets anyone tell a mistyped key offline."""
    body = f"{PREFIX}{parts.public_id}_{parts.secret}"
    return body + _checksum(body)


def read(text: str) -> KeyParts | None:
    """The parts of a key; None if it is not well-formed."""
    if len(text) != _CHARS or not text.isascii():
        return None
    body = text[:-_CHECK_CHARS]
    if _checksum(body) != text[-_CHECK_CHARS:]:
        return None
    public_id, _, secret = body.removeprefix(PREFIX).partition("_")
    parts = KeyParts(public_id, secret)
    return parts if is_public_id(public_id) and secret.isalnum() and write(parts) == text else None


def _random(chars: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(chars))


def _checksum(body: str) -> str:
    value, digits = zlib.crc32(body.encode()), ""
    for _ in range(_CHECK_CHARS):
        value, digit = divmod(value, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits
