"""A tenant's share of an engine's KV cache, and the policy's section with the shares of all."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property, lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from saltwall_tenants.wire.amount import NOTHING, Amount, AmountError, Capacity, plain
from saltwall_tenants.wire.errors import Refusal, WireError
from saltwall_tenants.wire.section import (
    MAX_EPOCH,
    bounded,
    check_successor,
    content_digest,
    expect_keys,
    tenant_id,
)

LEAST_WEIGHT, MOST_WEIGHT = Decimal("0.01"), Decimal(1000)
NAMED_IN_ERRORS = 5
_FIELDS = ("reserve", "ceiling", "weight", "strict", "store")


class BlockShare(NamedTuple):
    """A quota in one engine's blocks; without a ceiling a tenant may hold all."""

    reserve: int
    ceiling: int | None


@dataclass(frozen=True)
class Quota:
    """What one tenant may hold of an engine's KV cache, and its weight where tenants compete.

    Args:
        reserve: what nobody else can take from it.
        ceiling: what it can hold at most; None for all there is.
        weight: its share of admission and compute, 0.01 to 1000, at most six decimals.
        strict: the ceiling is the reserve, so that its cache depends on itself alone.
        store: whether what it computes is cached for its later requests.

    Raises:
        AmountError: the parts contradict each other.
    """

    reserve: Amount = NOTHING
    ceiling: Amount | None = None
    weight: Decimal = Decimal(1)
    strict: bool = False
    store: bool = True

    def __post_init__(self) -> None:
        """Refuses what can never be enforced, whatever the engine."""
        if not LEAST_WEIGHT <= self.weight <= MOST_WEIGHT:
            raise AmountError(f"a weight is {LEAST_WEIGHT} to {MOST_WEIGHT}, not {self.weight}")
        if self.weight != round(self.weight, 6):
            raise AmountError("a weight has at most six decimals")
        if self.strict:
            if self.ceiling is not None:
                raise AmountError("strict means that the ceiling is the reserve: leave it out")
            if not self.reserve.value:
                raise AmountError("strict needs a reserve: without one there is nothing to hold")
        if self.ceiling is None:
            return
        if not self.ceiling.value:
            raise AmountError("with a ceiling of 0 nothing can run: to stop a tenant, suspend it")
        same = self.ceiling.unit is self.reserve.unit
        if same and self.ceiling.value < self.reserve.value:
            raise AmountError(f"the ceiling {self.ceiling} is below the reserve {self.reserve}")

    def blocks(self, capacity: Capacity) -> BlockShare:
        """What it is in an engine's blocks, each part rounded down.

        A ceiling is never rounded to nothing: somebody meant that tenant to run. A strict one is
        exactly its reserve, whatever that comes to.

        Raises:
            AmountError: the ceiling comes out below the reserve, or a part cannot be converted.
        """
        reserve = self.reserve.blocks(capacity)
        if self.strict:
            return BlockShare(reserve, reserve)
        if self.ceiling is None:
            return BlockShare(reserve, None)
        ceiling = self.ceiling.blocks(capacity)
        if ceiling < reserve:
            raise AmountError(
                f"the ceiling {self.ceiling} is {ceiling} blocks here, below the reserve"
                f" {self.reserve}, which is {reserve}"
            )
        return BlockShare(reserve, max(ceiling, 1))

    @cached_property
    def canonical(self) -> tuple[str, str | None, str, bool, bool]:
        """Its parts as exact text."""
        ceiling = None if self.ceiling is None else str(self.ceiling)
        return str(self.reserve), ceiling, plain(self.weight), self.strict, self.store

    def document(self) -> dict[str, Any]:
        """As JSON has it; no number in it is a float."""
        return dict(zip(_FIELDS, self.canonical, strict=True))

    @classmethod
    def of(cls, document: Any) -> "Quota":
        """Reads what `document` wrote, and only that.

        Raises:
            WireError: it is not a quota, or not written as `document` does.
        """
        expect_keys(document, set(_FIELDS))
        reserve, ceiling, weight, *flags = (document[name] for name in _FIELDS)
        texts = [reserve, weight] + ([] if ceiling is None else [ceiling])
        if any(type(t) is not str for t in texts) or any(type(f) is not bool for f in flags):
            raise WireError(Refusal.MALFORMED, "not a quota")
        return _parsed(reserve, ceiling, weight, *flags)


@lru_cache(maxsize=4096)  # thousands of tenants have a few plans between them
def _parsed(reserve: str, ceiling: str | None, weight: str, strict: bool, store: bool) -> Quota:
    try:
        most = None if ceiling is None else Amount.parse(ceiling)
        quota = Quota(Amount.parse(reserve), most, parse_weight(weight), strict, store)
    except AmountError as error:
        raise WireError(Refusal.MALFORMED, str(error)) from None
    if quota.canonical != (reserve, ceiling, weight, strict, store):
        raise WireError(Refusal.MALFORMED, "not the canonical text of an amount")
    return quota


@dataclass(frozen=True)
class Quotas:
    """The quota section of a policy: tenants that it does not name have the default quota."""

    epoch: int
    tenants: Mapping[UUID, Quota]

    @cached_property
    def digest(self) -> str:
        """Of epoch and content, as exact text."""
        content = {tenant.bytes: list(quota.canonical) for tenant, quota in self.tenants.items()}
        return content_digest(self.epoch, content)

    def check_successor(self, current: "Quotas | None") -> None:
        """Raises:
        WireError: this section is older than `current`, or of its epoch with other content.
        """
        check_successor(self, current)

    def blocks(self, capacity: Capacity) -> dict[UUID, BlockShare]:
        """Every tenant's share in an engine's blocks.

        Raises:
            WireError: one cannot be converted, or the reserves are more than there is.
        """
        shares = {}
        try:
            for tenant, quota in self.tenants.items():
                try:
                    shares[tenant] = quota.blocks(capacity)
                except AmountError as error:
                    raise AmountError(f"tenant {tenant}: {error}") from None
            reserves = {str(tenant): share.reserve for tenant, share in shares.items()}
            check_reserves(reserves, capacity.blocks)
        except AmountError as error:
            raise WireError(Refusal.QUOTA, str(error)) from None
        return shares

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        tenants = {tenant.hex: quota.document() for tenant, quota in self.tenants.items()}
        return {"epoch": self.epoch, "digest": self.digest, "tenants": tenants}

    @classmethod
    def of(cls, document: Any) -> "Quotas":
        """Reads what `document` wrote.

        Raises:
            WireError: it is not a quota section, or not what its digest says.
        """
        try:
            expect_keys(document, {"epoch", "digest", "tenants"})
            section = cls(
                epoch=bounded(document["epoch"], 1, MAX_EPOCH),
                tenants={tenant_id(t): Quota.of(q) for t, q in document["tenants"].items()},
            )
        except WireError:
            raise
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise WireError(Refusal.MALFORMED, "not a quota section") from None
        if document["digest"] != section.digest:
            raise WireError(Refusal.MALFORMED, "digest does not match")
        return section


def parse_weight(text: str) -> Decimal:
    """Reads a weight, such as `2` or `0.5`.

    Raises:
        AmountError: it is no plain decimal.
    """
    try:
        if len(text) > 20 or not set(text) <= set("0123456789."):
            raise InvalidOperation
        return Decimal(text)
    except InvalidOperation:
        raise AmountError(f"{text[:20]!r} is not a weight: write 2 or 0.5") from None


def check_reserves(reserves: Mapping[str, int], blocks: int) -> None:
    """Raises:
    AmountError: together they are more than an engine's blocks; it names the largest.
    """
    total = sum(reserves.values())
    if total > blocks:
        raise AmountError(f"reserves add up to {total} of {blocks} blocks: {largest(reserves)}")


def largest(reserves: Mapping[str, int | Decimal], unit: str = "") -> str:
    """Who has reserved most, for an error: `acme 200, globex 140, 3 others`."""
    held = sorted((name for name in reserves if reserves[name]), key=lambda n: -reserves[n])
    named = [f"{name} {plain(Decimal(reserves[name]))}{unit}" for name in held[:NAMED_IN_ERRORS]]
    if len(held) > NAMED_IN_ERRORS:
        named.append(f"{len(held) - NAMED_IN_ERRORS} others")
    return ", ".join(named)
