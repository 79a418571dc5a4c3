"""The policy a gateway pushes to an engine: who may use it now, and until when it may believe so.

Its two sections, authorisation and quotas, have an epoch each, and are decoded and applied apart: a
refused quota never delays a revocation. An engine that attests no capacity is of an older release
and is sent no quotas; one that is sent none keeps those that it has.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from saltwall_tenants.wire.errors import Refusal, WireError
from saltwall_tenants.wire.quota import Quotas
from saltwall_tenants.wire.section import (
    MAX_EPOCH,
    bounded,
    check_successor,
    content_digest,
    expect_keys,
    tenant_id,
)

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
        """Of epoch and content."""
        content = {t.bytes: sorted(generations) for t, generations in self.tenants.items()}
        return content_digest(self.epoch, content)

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
        check_successor(self, current)


@dataclass(frozen=True)
class Lease:
    """How long the engine may serve without hearing from a gateway again (seconds)."""

    seconds: int = DEFAULT_LEASE_S


@dataclass(frozen=True)
class Policy:
    """One push.

    `quotas` is None when none were sent, and an error when what was sent is no quota section.
    """

    name: str
    lease: Lease
    authorisation: Authorisation
    quotas: Quotas | WireError | None = None

    def encode(self) -> bytes:
        """The JSON body of `PUT /saltwall/v1/policy`, made once."""
        return self._encoded

    @cached_property
    def _encoded(self) -> bytes:
        section = self.authorisation
        document = {
            "version": 1,
            "name": self.name,
            "lease_seconds": self.lease.seconds,
            "authorisation": {
                "epoch": section.epoch,
                "digest": section.digest,
                "tenants": {t.hex: sorted(g) for t, g in section.tenants.items()},
            },
        }
        if isinstance(self.quotas, Quotas):
            document["quotas"] = self.quotas.document()
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, body: bytes, name: str) -> "Policy":
        """Parses a push meant for the engine called `name`.

        Raises:
            WireError: it is not a policy, is for another engine, or is not what its digest says.
        """
        try:
            document = json.loads(body)
            required = {"version", "name", "lease_seconds", "authorisation"}
            expect_keys(document, required, {"quotas"})
            if document["version"] != 1:
                raise WireError(Refusal.VERSION)
            if document["name"] != name:
                raise WireError(Refusal.MALFORMED, "for another engine")
            lease = bounded(document["lease_seconds"], 1, MAX_LEASE_S)
            section = document["authorisation"]
            expect_keys(section, {"epoch", "digest", "tenants"})
            authorisation = Authorisation(
                epoch=bounded(section["epoch"], 1, MAX_EPOCH),
                tenants={
                    tenant_id(tenant): frozenset(bounded(g, 1, _MAX_GENERATION) for g in gens)
                    for tenant, gens in section["tenants"].items()
                },
            )
            if section["digest"] != authorisation.digest:
                raise WireError(Refusal.MALFORMED, "digest does not match")
        except WireError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise WireError(Refusal.MALFORMED, "not a policy document") from None
        quotas = _quotas(document["quotas"]) if "quotas" in document else None
        return cls(name, Lease(lease), authorisation, quotas)


def _quotas(document: Any) -> Quotas | WireError:
    try:
        return Quotas.of(document)
    except WireError as error:
        return error
