"""What the strategies make of one workload and pool size: hit rates, and whether the goals hold."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mooncake import BLOCK
from replay import Progress, Replay, Served, ServiceTime, at_once
from strategies import STRATEGIES, Capacity, elastic, one_lru
from workload import Workload

LEAST_OF_ONE_LRU = 0.97
LEAST_OF_RESERVE_ALONE = 0.99


@dataclass(frozen=True)
class Hits:
    """How much of some prompts was cached; a refused request counts, and hits nothing."""

    requests: int
    refused: int
    blocks: int  # in prompts, the partial last ones too
    hit_blocks: int
    tokens: int  # in prompts
    hit_tokens: int
    waited: float  # seconds, the mean of the requests served

    @classmethod
    def of(cls, workload: Workload, served: Sequence[Served], tenant: int | None = None) -> "Hits":
        """Adds up all requests, or one tenant's."""
        owner = workload.tenant_of
        chosen = [i for i in range(len(served)) if tenant is None or owner[i] == tenant]
        calls = [workload.calls[i] for i in chosen]
        refused = sum(served[i].hits is None for i in chosen)
        hit = sum(served[i].hits or 0 for i in chosen)
        return cls(
            requests=len(chosen),
            refused=refused,
            blocks=sum(len(call.blocks) for call in calls),
            hit_blocks=hit,
            tokens=sum(call.input_length for call in calls),
            hit_tokens=hit * BLOCK,
            waited=sum(served[i].waited for i in chosen) / max(1, len(chosen) - refused),
        )

    @property
    def rate(self) -> float:
        """Blocks hit of the prompts' blocks."""
        return self.hit_blocks / self.blocks if self.blocks else 0.0

    def json(self) -> dict[str, Any]:
        """Counts and rates under their names."""
        token_rate = self.hit_tokens / self.tokens if self.tokens else 0.0
        return vars(self) | {"hit_rate": self.rate, "token_hit_rate": token_rate}


@dataclass(frozen=True)
class Comparison:
    """Some strategies on one workload, pool and service time.

    `moderate` holds further replays of the elastic pool, each with a tenant in it that sends only
    what fits its reserve, while the others send everything.
    """

    workload: Workload
    capacity: Capacity
    served: dict[str, list[Served]]
    moderate: dict[int, list[Served]]

    @property
    def tenants(self) -> range:
        """All tenants, the busiest first."""
        return range(len(self.capacity.reserves))

    def hits(self, strategy: str, tenant: int | None = None) -> Hits:
        """Of all tenants under a strategy, or of one."""
        return Hits.of(self.workload, self.served[strategy], tenant)

    def over_one_lru(self, strategy: str) -> float:
        """A strategy's aggregate hit rate, in units of one LRU's."""
        return self.hits(strategy).rate / self.hits("one LRU").rate

    def over_reserve_alone(self, tenant: int) -> float | None:
        """A tenant's hits in the elastic pool, in units of what its reserve alone gives it.

        Requests larger than the reserve are sent to neither: it alone would have to refuse them,
        and its cache would be spared what they displace. None if it alone hits nothing.
        """
        alone = self.hits("reserve alone", tenant).hit_blocks
        served = self.moderate.get(tenant, self.served["elastic"])
        return Hits.of(self.workload, served, tenant).hit_blocks / alone if alone else None

    def worst(self) -> float | None:
        """The least that a tenant has of what its reserve alone gives it."""
        kept = [self.over_reserve_alone(t) for t in self.tenants if "reserve alone" in self.served]
        return min((ratio for ratio in kept if ratio is not None), default=None)

    def missed_goals(self) -> list[str]:
        """What was hoped for and is not so; empty when all is well."""
        missed = []
        if (ratio := self.over_one_lru("elastic")) < LEAST_OF_ONE_LRU:
            missed.append(f"elastic keeps {ratio:.3f} of one LRU, below {LEAST_OF_ONE_LRU}")
        if (worst := self.worst()) is not None and worst < LEAST_OF_RESERVE_ALONE:
            missed.append(f"a tenant keeps {worst:.3f} of what its reserve alone gives it")
        return missed

    def json(self) -> dict[str, Any]:
        """Everything, by strategy and tenant."""
        alone = "reserve alone" in self.served
        return {
            "blocks": self.capacity.total,
            "reserves": list(self.capacity.reserves),
            "over_one_lru": {name: self.over_one_lru(name) for name in self.served},
            "elastic_over_reserve_alone": [
                self.over_reserve_alone(tenant) for tenant in self.tenants if alone
            ],
            "missed_goals": self.missed_goals(),
            "strategies": {
                name: self.hits(name).json()
                | {"tenants": [self.hits(name, tenant).json() for tenant in self.tenants]}
                for name in self.served
            },
        }


def immoderate(workload: Workload, capacity: Capacity) -> list[int]:
    """Tenants with a request that their reserve alone could not hold."""
    requests = range(len(workload.calls))
    return sorted(
        {
            tenant
            for tenant, index in zip(workload.tenant_of, requests, strict=True)
            if workload.blocks_needed(index) > capacity.reserves[tenant]
        }
    )


def compare(
    workload: Workload,
    capacity: Capacity,
    service_time: ServiceTime,
    strategies: Sequence[str] = tuple(STRATEGIES),
    progress: Progress = lambda: None,
) -> Comparison:
    """Replays the workload once for each strategy, and once more for each immoderate tenant.

    Args:
        workload: the requests.
        capacity: what there is to share.
        service_time: how long a request keeps its blocks.
        strategies: which to compare; without "reserve alone", nobody's promise is looked at.
        progress: called once for each request of each replay.
    """

    def replay(shelves: Callable[..., Any], *args: int) -> list[Served]:
        return Replay(workload, shelves(capacity, *args), service_time).run(progress)

    served = {name: replay(STRATEGIES[name]) for name in strategies}
    promised = immoderate(workload, capacity) if "reserve alone" in served else []
    moderate = {tenant: replay(elastic, tenant) for tenant in promised}
    return Comparison(workload, capacity, served, moderate)


def everything_fits(workload: Workload, progress: Progress = lambda: None) -> Hits:
    """What a stock pool that never evicts finds: no strategy can do better."""
    blocks = sum(workload.blocks_needed(index) for index in range(len(workload.calls)))
    shelves = one_lru(Capacity.of(blocks, 0, workload.shares, by_demand=False))
    return Hits.of(workload, Replay(workload, shelves, at_once).run(progress))
