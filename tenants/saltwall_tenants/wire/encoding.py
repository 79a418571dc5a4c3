"""The two encodings that everything on the wire uses: deterministic CBOR and unpadded base64url."""

import base64
import binascii
from typing import Any

import cbor2

from saltwall_tenants.wire.errors import Refusal, WireError


def cbor(value: Any) -> bytes:
    """Encodes in RFC 8949 core deterministic form, so that equal values are equal bytes."""
    return cbor2.dumps(value, canonical=True)


def b64encode(data: bytes) -> str:
    """Encodes as base64url without padding (RFC 4648 section 5)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def b64decode(text: str, size: int) -> bytes:
    """Decodes exactly `size` bytes; only the string `b64encode` makes is accepted."""
    try:
        data = base64.b64decode(
            text.encode("ascii") + b"=" * (-len(text) % 4), b"-_", validate=True
        )
    except (UnicodeEncodeError, binascii.Error):
        raise WireError(Refusal.MALFORMED, "not base64url") from None
    if len(data) != size or b64encode(data) != text:
        raise WireError(Refusal.MALFORMED, "not the canonical encoding")
    return data
