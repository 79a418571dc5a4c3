"""The policy a gateway pushes to an engine: who may use it now, and until when it may believe so.

Sections have an epoch each. Quotas will be a section of their own, so that a refused quota never
delays a revocation.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from saltwall_tenants.wire.encoding import cbor
from saltwall_tenants.wire.errors import Refusal, WireError

DEFAULT_LEASE_S = 60
MAX_LEASE_S = 3600
_MAX_GENERATION = 2**32 - 1


@dataclass(frozen=True)
class Authorisation:
    """Which generations of which tenants' salts the engine accepts; the absent are refused."""

    epoch: int
    tenants: Mapping[UUID, frozenset[int]]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical content: two sections of one epoch must agree in it."""
        content = {t.bytes: sorted(generations) for t, generations in self.tenants.items()}
        return hashlib.sha256(cbor([self.epoch, content])).hexdigest()

    def check(self, tenant: UUID, generation: int) -> None:
        """Raises:
        WireError: the tenant is unknown, suspended or deleted, or the generation revoked.
        """
        generations = self.tenants.get(tenant)
        if generations is None:
            raise WireError(Refusal.UNKNOWN_TENANT)
        if generation not in generations:
            raise WireError(Refusal.UNKNOWN_GENERATION)

    def check_successor(self, current: "Authorisation | None") -> None:
        """Raises:
        WireError: this section is older than `current`, or of its epoch with other content.
        """
        if current is None or self.epoch > current.epoch:
            return
        if self.epoch < current.epoch:
            raise WireError(Refusal.STALE_EPOCH, f"{self.epoch} after {current.epoch}")
        if self.digest != current.digest:
            raise WireError(Refusal.EPOCH_CONFLICT, f"two documents for epoch {self.epoch}")


@dataclass(frozen=True)
class Lease:
    """How long the engine may serve without hearing from a gateway again (seconds)."""

    seconds: int = DEFAULT_LEASE_S


@dataclass(frozen=True)
class Policy:
    """One push."""

    name: str
    lease: Lease
    authorisation: Authorisation

    def encode(self) -> bytes:
        """The JSON body of `PUT /saltwall/v1/policy`."""
        section = self.authorisation
        return json.dumps(
            {
                "version": 1,
                "name": self.name,
                "lease_seconds": self.lease.seconds,
                "authorisation": {
                    "epoch": section.epoch,
                    "digest": section.digest,
                    "tenants": {t.hex: sorted(g) for t, g in section.tenants.items()},
                },
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def decode(cls, body: bytes, name: str) -> "Policy":
        """Parses a push meant for the engine called `name`.

        Raises:
            WireError: it is not a policy, is for another engine, or is not what its digest says.
        """
        try:
            document = json.loads(body)
            _expect_keys(document, {"version", "name", "lease_seconds", "authorisation"})
            if document["version"] != 1:
                raise WireError(Refusal.VERSION)
            if document["name"] != name:
                raise WireError(Refusal.MALFORMED, "for another engine")
            lease = _bounded(document["lease_seconds"], 1, MAX_LEASE_S)
            section = document["authorisation"]
            _expect_keys(section, {"epoch", "digest", "tenants"})
            authorisation = Authorisation(
                epoch=_bounded(section["epoch"], 1, 2**62),
                tenants={
                    _tenant(tenant): frozenset(_bounded(g, 1, _MAX_GENERATION) for g in gens)
                    for tenant, gens in section["tenants"].items()
                },
            )
            if section["digest"] != authorisation.digest:
                raise WireError(Refusal.MALFORMED, "digest does not match")
        except WireError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise WireError(Refusal.MALFORMED, "not a policy document") from None
        return cls(name, Lease(lease), authorisation)


def _expect_keys(document: Any, keys: set[str]) -> None:
    if not isinstance(document, dict) or set(document) != keys:
        raise WireError(Refusal.MALFORMED, f"expected exactly {', '.join(sorted(keys))}")


def _bounded(value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise WireError(Refusal.MALFORMED, f"expected a whole number from {low} to {high}")
    return value


def _tenant(text: str) -> UUID:
    tenant = UUID(hex=text)
    if tenant.hex != text:
        raise WireError(Refusal.MALFORMED, "a tenant id is 32 lower-case hex digits")
    return tenant
