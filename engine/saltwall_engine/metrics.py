"""What Prometheus can ask of an engine: a bounded number of series a tenant, from its usage.

Tenants are named by their hex id: those that hold most blocks, and `other` for the rest together.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from heapq import nlargest
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

TENANTS_VARIABLE = "SALTWALL_ENGINE_METRICS_TENANTS"
DEFAULT_TENANTS = 50
"""How many tenants have series of their own."""
OTHER = "other"

_COUNTED = {
    "hit_tokens": ("prompt_tokens", "cache", "hit"),
    "missed_tokens": ("prompt_tokens", "cache", "miss"),
    "evictions_caused": ("evictions", "side", "caused"),
    "evictions_suffered": ("evictions", "side", "suffered"),
    "preemptions_caused": ("preemptions", "side", "caused"),
    "preemptions_suffered": ("preemptions", "side", "suffered"),
}
_HELP = {
    "prompt_tokens": "Prompt tokens of admitted requests, found in the cache or not.",
    "evictions": "Cached blocks of one tenant that another's request replaced.",
    "preemptions": "Running requests of one tenant that made way for another's, or for its own.",
}

Row = Mapping[str, Any]


class TenantMetrics:
    """Renders usage documents; remembers to which series each tenant's counts went.

    While a tenant has series of its own they count what it does, and `other` does while it has
    none: so no counter falls and nothing is counted twice, whoever gains and loses series.
    """

    def __init__(self, tenants: int | None = None) -> None:
        if tenants is None:
            tenants = int(os.environ.get(TENANTS_VARIABLE, DEFAULT_TENANTS))
        self._most = tenants
        self._seen: dict[str, Row] = {}
        self._counted: dict[str, Counter[str]] = {OTHER: Counter()}

    def render(self, usage: Mapping[str, Any]) -> bytes:
        """The exposition format of an engine's usage document."""
        rows: Mapping[str, Row] = usage["tenants"]
        own = nlargest(self._most, rows, key=lambda tenant: (rows[tenant]["held"], tenant))
        rest = rows.keys() - set(own)
        for tenant, row in rows.items():
            before = self._seen.get(tenant, {})
            counted = self._counted.setdefault(OTHER if tenant in rest else tenant, Counter())
            counted.update({name: row[name] - before.get(name, 0) for name in _COUNTED})
        self._seen = dict(rows)
        shown: dict[str, Row] = {
            tenant: {**rows[tenant], **self._counted[tenant]} for tenant in own
        }
        if rest or any(self._counted[OTHER].values()):
            shown[OTHER] = self._sum([rows[tenant] for tenant in rest])
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Families([*_engine(usage), *_tenants(shown)]))
        return generate_latest(registry)

    def _sum(self, rows: list[Row]) -> Row:
        gauges = ("pinned", "idle", "reserve", "running", "waiting")
        summed = {name: sum(row[name] for row in rows) for name in gauges}
        oldest = max((row["waiting_age_s"] for row in rows), default=0.0)
        return {**summed, **self._counted[OTHER], "waiting_age_s": oldest, "ceiling": None}


class _Families(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """What was made already."""
        return iter(self._families)


def _engine(usage: Mapping[str, Any]) -> Iterator[Metric]:
    blocks = GaugeMetricFamily(
        "saltwall_kv_blocks", "KV cache blocks; idle ones hold what is cached.", labels=["kind"]
    )
    for kind, count in usage["blocks"].items():
        blocks.add_metric([kind], count)
    alarms = CounterMetricFamily(
        "saltwall_alarms", "Things that must not happen: look at the log.", labels=["kind"]
    )
    for kind, count in usage["alarms"].items():
        alarms.add_metric([kind], count)
    refusals = CounterMetricFamily(
        "saltwall_refusals", "Requests that the engine core did not admit.", labels=["reason"]
    )
    for reason, count in usage["refusals"].items():
        refusals.add_metric([reason], count)
    erased = CounterMetricFamily(
        "saltwall_erased_blocks",
        "KV cache blocks overwritten after a purge.",
        value=usage["erasure"]["erased"],
    )
    yield from (blocks, alarms, refusals, erased)
    yield GaugeMetricFamily(
        "saltwall_tenants", "Tenants that the engine has heard of.", value=len(usage["tenants"])
    )
    epoch = usage["quotas"]["epoch"]
    yield GaugeMetricFamily(
        "saltwall_quotas_epoch", "Of the quotas in force; 0 before the first.", value=epoch or 0
    )


def _tenants(rows: Mapping[str, Row]) -> Iterator[Metric]:
    held = GaugeMetricFamily(
        "saltwall_tenant_kv_blocks", "Blocks charged to a tenant.", labels=["tenant", "state"]
    )
    reserve = GaugeMetricFamily(
        "saltwall_tenant_reserve_blocks", "What nobody can take from it.", labels=["tenant"]
    )
    ceiling = GaugeMetricFamily(
        "saltwall_tenant_ceiling_blocks", "The most it may hold, if bounded.", labels=["tenant"]
    )
    requests = GaugeMetricFamily(
        "saltwall_tenant_requests", "Requests in the engine.", labels=["tenant", "state"]
    )
    age = GaugeMetricFamily(
        "saltwall_tenant_waiting_age_seconds", "Of what waits longest.", labels=["tenant"]
    )
    counters = {
        name: CounterMetricFamily(f"saltwall_tenant_{name}", _HELP[name], labels=["tenant", label])
        for name, label, _ in _COUNTED.values()
    }
    for tenant, row in rows.items():
        for state in ("pinned", "idle"):
            held.add_metric([tenant, state], row[state])
        reserve.add_metric([tenant], row["reserve"])
        if row["ceiling"] is not None:
            ceiling.add_metric([tenant], row["ceiling"])
        for state in ("running", "waiting"):
            requests.add_metric([tenant, state], row[state])
        age.add_metric([tenant], row["waiting_age_s"])
        for field, (name, _, value) in _COUNTED.items():
            counters[name].add_metric([tenant, value], row[field])
    yield from (held, reserve, ceiling, requests, age, *counters.values())
