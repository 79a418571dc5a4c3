"""Defects of what both ends agree on: no end notices by itself."""

import hmac
from typing import Any

from mutants.mutant import Mutant, Where

PREFIX_BYTES = 4

MAC_PREFIX = Mutant(
    "mac-compared-on-a-prefix",
    "Of the seal's 32 bytes the first 4 are compared.",
    Where.WIRE,
    "ticket",
    "G7",
)


@MAC_PREFIX.replaces("saltwall_tenants.wire.seal:check_seal")
def _(
    original: Any, key: bytes, seal: str, ticket: str, method: str, path: str, digest: bytes
) -> None:
    from saltwall_tenants.wire import seal as module
    from saltwall_tenants.wire.encoding import b64decode

    expected = module._mac(key, ticket, method, path, digest)
    given = b64decode(seal, len(expected))
    if not hmac.compare_digest(given[:PREFIX_BYTES], expected[:PREFIX_BYTES]):
        raise module.WireError(module.Refusal.SEAL)


BODY_UNSEALED = Mutant(
    "seal-without-body", "The seal does not cover the body.", Where.WIRE, "ticket", "G7"
)
PATH_UNSEALED = Mutant(
    "seal-without-path", "The seal does not cover the path.", Where.WIRE, "ticket", "G7"
)


@BODY_UNSEALED.replaces("saltwall_tenants.wire.seal:_mac")
def _(original: Any, key: bytes, ticket: str, method: str, path: str, digest: bytes) -> bytes:
    return bytes(original(key, ticket, method, path, b""))


@PATH_UNSEALED.replaces("saltwall_tenants.wire.seal:_mac")
def _(original: Any, key: bytes, ticket: str, method: str, path: str, digest: bytes) -> bytes:
    return bytes(original(key, ticket, method, "", digest))


AGELESS = Mutant(
    "ticket-never-ages",
    "A ticket is good for as long as its keys are.",
    Where.WIRE,
    "ticket",
    "G7",
)


@AGELESS.replaces("saltwall_tenants.wire.ticket:open_ticket")
def _(original: Any, *args: Any, **kwargs: Any) -> Any:
    return original(*args, **{**kwargs, "max_age_s": float("inf")})
