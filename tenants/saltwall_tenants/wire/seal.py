"""The seal: binds a ticket to one request, so that a stolen ticket opens nothing else."""

import hashlib
import hmac
import json

from saltwall_tenants.wire.encoding import b64decode, b64encode, cbor
from saltwall_tenants.wire.errors import Refusal, WireError
from saltwall_tenants.wire.ticket import TICKET_CHARS

SEAL_HEADER = "x-saltwall-seal"
SEAL_CHARS = 43
_BODY_PREFIX = b'{"cache_salt":"'


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
    try:
        expected = _mac(key, ticket, method, path, body_digest)
    except UnicodeEncodeError:  # JSON can spell lone surrogates, which no seal is made over
        raise WireError(Refusal.SEAL) from None
    if not hmac.compare_digest(b64decode(seal, len(expected)), expected):
        raise WireError(Refusal.SEAL)


def embed_ticket(fields: dict[str, object], ticket: str) -> bytes:
    """Serialises a request with its ticket as the first member, where `read_ticket` finds it.

    Args:
        fields: the request's fields; a `cache_salt` among them is replaced.
        ticket: the ticket, `TICKET_CHARS` long.

    Raises:
        ValueError: a number that JSON cannot hold, or a string that is not Unicode text.
    """
    ordered = {"cache_salt": ticket, **{k: v for k, v in fields.items() if k != "cache_salt"}}
    return json.dumps(ordered, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def read_ticket(body: bytes) -> str:
    """Finds a request's ticket without parsing its body.

    Raises:
        WireError: the body does not begin with a ticket.
    """
    end = len(_BODY_PREFIX) + TICKET_CHARS
    if not body.startswith(_BODY_PREFIX) or body[end : end + 1] != b'"':
        raise WireError(Refusal.MALFORMED, "the body does not begin with a ticket")
    return body[len(_BODY_PREFIX) : end].decode("ascii", errors="replace")
