"""The ticket: a tenant's salt, encrypted for one engine, in the request's `cache_salt` field."""

import os
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

from saltwall_tenants.wire.encoding import b64decode, b64encode, cbor
from saltwall_tenants.wire.errors import Refusal, WireError
from saltwall_tenants.wire.salt import SALT_BYTES

VERSION = "sw1."
MAX_TICKET_AGE_S = 60
MAX_CLOCK_SKEW_S = 30
NONCE_BYTES = 12
_BODY = struct.Struct(">16sI32sI")
_SEALED_BYTES = 1 + NONCE_BYTES + _BODY.size + 16
TICKET_CHARS = len(VERSION) + (_SEALED_BYTES * 4 + 2) // 3


@dataclass(frozen=True)
class Ticket:
    """What a ticket says: whose KV salt this is, and since when (unix seconds)."""

    tenant: UUID
    generation: int
    salt: bytes = field(repr=False)
    issued_at: int


def _associated_data(name: str) -> bytes:
    return cbor(["saltwall/ticket/1", name])


def make_ticket(key_id: int, key: bytes, name: str, ticket: Ticket) -> str:
    """Encrypts a ticket for the engine called `name`; always `TICKET_CHARS` characters.

    AES-256-GCM-SIV (RFC 8452): a repeated nonce reveals equality, never the key.

    Raises:
        ValueError: the salt is not 32 bytes.
    """
    if len(ticket.salt) != SALT_BYTES:
        raise ValueError(f"a KV salt has {SALT_BYTES} bytes")
    nonce = os.urandom(NONCE_BYTES)
    body = _BODY.pack(ticket.tenant.bytes, ticket.generation, ticket.salt, ticket.issued_at)
    sealed = AESGCMSIV(key).encrypt(nonce, body, _associated_data(name))
    return VERSION + b64encode(bytes([key_id]) + nonce + sealed)


def open_ticket(
    text: object,
    keys: Mapping[int, bytes],
    name: str,
    *,
    max_age_s: float = MAX_TICKET_AGE_S,
    now: float | None = None,
) -> tuple[int, Ticket]:
    """Decrypts a ticket meant for the engine called `name`; returns its key id with it.

    Raises:
        WireError: anything but a whole, genuine, fresh ticket for that engine.
    """
    if not isinstance(text, str) or not text.startswith("sw"):
        raise WireError(Refusal.MALFORMED, "no ticket")
    if not text.startswith(VERSION):
        raise WireError(Refusal.VERSION)
    if len(text) != TICKET_CHARS:
        raise WireError(Refusal.MALFORMED, "wrong length")
    data = b64decode(text[len(VERSION) :], _SEALED_BYTES)
    key = keys.get(data[0])
    if key is None:
        raise WireError(Refusal.UNKNOWN_KEY)
    nonce, sealed = data[1 : 1 + NONCE_BYTES], data[1 + NONCE_BYTES :]
    try:
        body = AESGCMSIV(key).decrypt(nonce, sealed, _associated_data(name))
    except InvalidTag:
        raise WireError(Refusal.FORGED) from None
    tenant, generation, salt, issued_at = _BODY.unpack(body)
    age = (time.time() if now is None else now) - issued_at
    if age < -MAX_CLOCK_SKEW_S:
        raise WireError(Refusal.FUTURE)
    if age > max_age_s:
        raise WireError(Refusal.EXPIRED)
    return data[0], Ticket(UUID(bytes=tenant), generation, salt, issued_at)
