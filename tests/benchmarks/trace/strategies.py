"""The ways to share one pool that are compared, each a pool or several ready for a replay."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mooncake import BLOCK
from replay import Shelf
from vllm.v1.core.block_pool import BlockPool
from workload import tenant_id

from saltwall_engine.ledger import Quota
from saltwall_engine.pool import OwnedBlockPool, own


@dataclass(frozen=True)
class Capacity:
    """What there is to share: `total` blocks, of which each tenant has reserved some."""

    total: int
    reserves: Sequence[int]  # blocks, by tenant
    demand: Sequence[float]  # share of conversations, by tenant

    @classmethod
    def of(
        cls, total: int, reserved: float, demand: Sequence[float], by_demand: bool
    ) -> "Capacity":
        """Reserves a fraction of the pool, in equal parts or in proportion to demand."""
        parts = demand if by_demand else [1 / len(demand)] * len(demand)
        return cls(total, _split(total * reserved, parts), demand)

    @property
    def strict(self) -> list[int]:
        """The whole pool divided in the proportions of the reserves, rounded down."""
        reserved = sum(self.reserves)
        parts = [reserve / reserved for reserve in self.reserves] if reserved else self.demand
        return _split(self.total, parts)


def _split(total: float, parts: Sequence[float]) -> list[int]:
    return [int(total * part + 1e-6) for part in parts]  # the sum of the parts may be 1 - 1e-16


def stock_pool(blocks: int) -> BlockPool:
    """vLLM's own pool of so many usable blocks; one more is its null block."""
    return BlockPool(blocks + 1, enable_caching=True, hash_block_size=BLOCK)


def saltwall_pool(blocks: int, quotas: Sequence[Quota]) -> OwnedBlockPool:
    """The same pool with Saltwall's quotas, by tenant."""
    pool = own(stock_pool(blocks), may_cache=lambda owner: True)
    for tenant, quota in enumerate(quotas):
        pool.ledger.set_quota(tenant_id(tenant), quota)
    return pool


def one_lru(capacity: Capacity) -> list[Shelf]:
    """Stock vLLM: tenants share one pool that evicts the least recently used block."""
    tenants = len(capacity.reserves)
    return [Shelf(stock_pool(capacity.total), [capacity.total] * tenants)] * tenants


def partitions(sizes: Sequence[int]) -> list[Shelf]:
    """A stock pool of its own for each tenant."""
    return [Shelf(stock_pool(size), sizes) for size in sizes]


def static(capacity: Capacity) -> list[Shelf]:
    """The pool divided for good, in the proportions of the reserves."""
    return partitions(capacity.strict)


def static_by_demand(capacity: Capacity) -> list[Shelf]:
    """The pool divided for good by somebody who knew each tenant's share of the load."""
    return partitions(_split(capacity.total, capacity.demand))


def elastic(capacity: Capacity, moderate: int | None = None) -> list[Shelf]:
    """Saltwall: each tenant has its reserve, and whatever the others leave.

    A request that needs more than the others' reserves leave is refused, as by Saltwall's
    scheduler. One tenant may be moderate: it sends only its requests that fit its reserve.
    """
    spare = capacity.total - sum(capacity.reserves)
    largest = [spare + reserve for reserve in capacity.reserves]
    if moderate is not None:
        largest[moderate] = capacity.reserves[moderate]
    pool = saltwall_pool(capacity.total, [Quota(reserve) for reserve in capacity.reserves])
    return [Shelf(pool, largest, queue_per_tenant=True)] * len(largest)


def strict(capacity: Capacity) -> list[Shelf]:
    """Saltwall: reserve and ceiling of each tenant are one, and add up to the pool."""
    sizes = capacity.strict
    pool = saltwall_pool(capacity.total, [Quota(size, size) for size in sizes])
    return [Shelf(pool, sizes, queue_per_tenant=True)] * len(sizes)


def reserve_alone(capacity: Capacity) -> list[Shelf]:
    """The yardstick of the promise: a stock pool of exactly its reserve for each tenant."""
    return partitions(capacity.reserves)


STRATEGIES: dict[str, Callable[[Capacity], list[Shelf]]] = {
    "one LRU": one_lru,
    "static": static,
    "static by demand": static_by_demand,
    "strict": strict,
    "elastic": elastic,
    "reserve alone": reserve_alone,
}
