"""What the sections of a policy have in common: an epoch that only grows, and a digest."""

import hashlib
from collections.abc import Set as AbstractSet
from typing import Any, Protocol
from uuid import UUID

from saltwall_tenants.wire.encoding import cbor
from saltwall_tenants.wire.errors import Refusal, WireError

MAX_EPOCH = 2**62


class Section(Protocol):
    """One part of the policy, pushed and refused on its own."""

    @property
    def epoch(self) -> int:
        """When it was made; one epoch has one content."""

    @property
    def digest(self) -> str:
        """Of epoch and content."""


def content_digest(epoch: int, content: Any) -> str:
    """SHA-256 of the canonical content: two sections of one epoch must agree in it."""
    return hashlib.sha256(cbor([epoch, content])).hexdigest()


def check_successor(section: Section, current: Section | None) -> None:
    """Raises:
    WireError: the section is older than `current`, or of its epoch with other content.
    """
    if current is None or section.epoch > current.epoch:
        return
    if section.epoch < current.epoch:
        raise WireError(Refusal.STALE_EPOCH, f"{section.epoch} after {current.epoch}")
    if section.digest != current.digest:
        raise WireError(Refusal.EPOCH_CONFLICT, f"two documents for epoch {section.epoch}")


def expect_keys(
    document: Any, keys: AbstractSet[str], optional: AbstractSet[str] = frozenset()
) -> None:
    """Raises:
    WireError: `document` is no object with these keys, and perhaps the optional ones.
    """
    if not isinstance(document, dict) or not keys <= set(document) <= keys | optional:
        raise WireError(Refusal.MALFORMED, f"expected exactly {', '.join(sorted(keys))}")


def bounded(value: Any, low: int, high: int) -> int:
    """A whole number within bounds.

    Raises:
        WireError: it is not.
    """
    if type(value) is not int or not low <= value <= high:
        raise WireError(Refusal.MALFORMED, f"expected a whole number from {low} to {high}")
    return value


def tenant_id(text: str) -> UUID:
    """A tenant's id in its one form.

    Raises:
        WireError: it is another form of one.
        ValueError: it is no id.
    """
    tenant = UUID(hex=text)
    if tenant.hex != text:
        raise WireError(Refusal.MALFORMED, "a tenant id is 32 lower-case hex digits")
    return tenant
