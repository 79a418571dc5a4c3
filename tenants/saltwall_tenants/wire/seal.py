"""The seal: binds a ticket to one request, so that a stolen ticket opens nothing else."""

import hashlib
import hmac

from saltwall_tenants.wire.encoding import b64decode, b64encode, cbor
from saltwall_tenants.wire.errors import Refusal, WireError

SEAL_HEADER = "x-saltwall-seal"


def _mac(key: bytes, ticket: str, method: str, path: str, body_digest: bytes) -> bytes:
    return hmac.new(key, cbor([ticket, method, path, body_digest]), hashlib.sha256).digest()


def make_seal(key: bytes, ticket: str, method: str, path: str, body: bytes) -> str:
    """Seals one request: its ticket, method, path (no query) and exact body bytes."""
    return b64encode(_mac(key, ticket, method, path, hashlib.sha256(body).digest()))


def check_seal(
    key: bytes, seal: str, ticket: str, method: str, path: str, body_digest: bytes
) -> None:
    """Checks a seal in constant time; `body_digest` is SHA-256 of the body.

    Raises:
        WireError: the seal is not that of this request.
    """
    expected = _mac(key, ticket, method, path, body_digest)
    if not hmac.compare_digest(b64decode(seal, len(expected)), expected):
        raise WireError(Refusal.SEAL)
