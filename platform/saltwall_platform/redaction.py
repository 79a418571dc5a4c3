"""The last line: whatever looks like a secret of ours is struck out of a text before it leaves."""

import re

_SECRETS = (
    (re.compile(r"sw_live_[\w-]+"), "[api key]"),
    (re.compile(r"sw\d+\.[\w-]{16,}"), "[ticket]"),
    (re.compile(r"(?i)bearer\s+[\w.~+/=-]+"), "Bearer [secret]"),
)


def redact(text: str) -> str:
    """Strikes out API keys, tickets and bearer secrets."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def redact_bytes(data: bytes) -> bytes:
    """The same for UTF-8 bytes; those that hold no secret are returned as they are."""
    return redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
