"""A tenant's KV salt, and the label that stands for it wherever others can look."""

import hashlib
import hmac

from saltwall_tenants.wire.encoding import cbor
from saltwall_tenants.wire.keys import hkdf

SALT_BYTES = 32
MAX_SCOPE_BYTES = 256


def derive_kv_salt(secret: bytes, name: str, scope: str = "") -> bytes:
    """Derives the 32 bytes that go into every block hash.

    Args:
        secret: the tenant's secret of one generation, 32 bytes.
        name: the model deployment.
        scope: the client's own partition inside its tenant, at most 256 UTF-8 bytes.
    """
    return hkdf(secret, cbor(["saltwall/kv-salt/1", name, scope]), SALT_BYTES)


def salt_label(salt: bytes) -> str:
    """Names a salt without revealing it: 16 hex digits, all that stock code and logs see."""
    return hmac.new(salt, b"label", hashlib.sha256).hexdigest()[:16]
