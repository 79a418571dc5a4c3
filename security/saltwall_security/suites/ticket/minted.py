"""Tickets made by the auditor itself, where it was given the engine's keys: its own second opinion.

Nobody without those keys can make one. They show what wire recordings would take long to show: that
a ticket dies of age, and that it is good for one engine, tenant and generation.
"""

import base64
import hashlib
import hmac
import json
import secrets
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

from saltwall_security.collision.cbor import encode
from saltwall_security.recording import Recorded
from saltwall_security.suites.ticket.altered import with_ticket
from saltwall_security.suites.ticket.shots import Shot
from saltwall_security.suites.ticket.spied import SEAL_HEADER

LIFETIME_S, SKEW_S = 60, 30
"""How old a ticket may be, and how far from the future (DESIGN 3.2)."""
_CONTENT = struct.Struct(">16sI32sI")
_NONCE_BYTES, _SALT_BYTES = 12, 32


@dataclass(frozen=True)
class Mint:
    """An engine's ticket and seal keys, of the newest key id."""

    name: str
    key_id: int
    ticket_key: bytes = field(repr=False)
    seal_key: bytes = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> "Mint | None":
        """Reads an engine's key file; None if it cannot be read, or is none."""
        try:
            found = json.loads(path.read_text())
            key_id = max(map(int, found["tickets"]))
            ticket, seal = (_decoded(found[kind][str(key_id)]) for kind in ("tickets", "seals"))
            return cls(str(found["name"]), key_id, ticket, seal)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def remake(
        self,
        genuine: Recorded,
        tenant: UUID,
        generation: int = 1,
        *,
        age_s: float = 0,
        name: str | None = None,
        key_id: int | None = None,
    ) -> Recorded:
        """A genuine request with a ticket of the auditor's, sealed anew.

        Args:
            age_s: how long ago it was issued.
            name: the engine that it is for, this one unless given.
            key_id: what it claims to be sealed with.
        """
        nonce, salt = secrets.token_bytes(_NONCE_BYTES), secrets.token_bytes(_SALT_BYTES)
        content = _CONTENT.pack(tenant.bytes, generation, salt, int(time.time() - age_s))
        audience = encode(["saltwall/ticket/1", self.name if name is None else name])
        sealed = AESGCMSIV(self.ticket_key).encrypt(nonce, content, audience)
        claimed = bytes([self.key_id if key_id is None else key_id])
        ticket = "sw1." + _encoded(claimed + nonce + sealed)
        return self.seal(with_ticket(genuine, ticket), ticket)

    def seal(self, request: Recorded, ticket: str) -> Recorded:
        """The request with a seal over what it is now."""
        digest = hashlib.sha256(request.body).digest()
        message = encode([ticket, request.method, request.path, digest])
        seal = hmac.new(self.seal_key, message, hashlib.sha256).digest()
        return request.with_header(SEAL_HEADER, _encoded(seal))


def outdated(mint: Mint, genuine: Recorded, tenant: UUID) -> Sequence[Shot]:
    """Tickets too old, and from too far in the future."""
    ages = (LIFETIME_S + 5, LIFETIME_S + 60, 3600, 86_400, -SKEW_S - 5, -3600)
    return [Shot(f"issued {age} s ago", mint.remake(genuine, tenant, age_s=age)) for age in ages]


def misdirected(mint: Mint, genuine: Recorded, tenant: UUID) -> Sequence[Shot]:
    """Tickets for another engine, of another key, and of nobody's."""
    other_key = (mint.key_id + 1) % 256
    return [
        Shot("for another engine", mint.remake(genuine, tenant, name=f"{mint.name}-2")),
        Shot("for no engine", mint.remake(genuine, tenant, name="")),
        Shot("of an unknown key", mint.remake(genuine, tenant, key_id=other_key)),
        Shot("of nobody", mint.remake(genuine, UUID(int=0))),
        Shot("of an unknown tenant", mint.remake(genuine, UUID(bytes=secrets.token_bytes(16)))),
        Shot("of no generation", mint.remake(genuine, tenant, 0)),
        Shot("of a generation to come", mint.remake(genuine, tenant, 2**32 - 1)),
    ]


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
