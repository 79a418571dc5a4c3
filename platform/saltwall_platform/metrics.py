"""What Prometheus can ask of the gateway; every label has a bounded set of values."""

import time
from collections.abc import Iterable, Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from saltwall_platform.replicas import Replica
from saltwall_platform.usage import Usage
from saltwall_tenants.wire import Refusal

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """All counters of this process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"saltwall_{name}", text, labels, registry=self.registry)

        def seconds(name: str, text: str) -> Histogram:
            name = f"saltwall_{name}_seconds"
            return Histogram(name, text, ("route",), buckets=SECONDS, registry=self.registry)

        self._requests = counter("requests", "Answered requests.", "route", "status")
        self._tokens = counter("tokens", "Tokens settled.", "model", "kind")
        self._refusals = counter(
            "engine_refusals", "Tickets that an engine refused.", "engine", "reason"
        )
        self._alarms = counter("alarms", "Things that must not happen: look at the log.", "kind")
        self._durations = seconds("request", "Whole requests.")
        self._first_bytes = seconds("first_byte", "From the request to the engine's first byte.")
        self.running = Gauge(
            "saltwall_requests_running", "Requests under way.", ("route",), registry=self.registry
        )
        self.unsettled = Gauge(
            "saltwall_usage_unsettled",
            "Usage records that wait for the database.",
            registry=self.registry,
        )
        for kind in ("policy_stale", "quotas_refused", "ticket_refused", "engine_denied"):
            self._alarms.labels(kind)  # a rate needs the zero too

    def answered(self, route: str, status: int, duration_s: float) -> None:
        """Counts a request that has ended."""
        self._requests.labels(route, f"{status // 100}xx").inc()
        self._durations.labels(route).observe(duration_s)

    def first_byte(self, route: str, seconds: float) -> None:
        """Notes how long an engine took to begin its answer."""
        self._first_bytes.labels(route).observe(seconds)

    def settled(self, model: str, usage: Usage) -> None:
        """Counts the tokens of a request."""
        self._tokens.labels(model, "prompt").inc(usage.prompt_tokens)
        self._tokens.labels(model, "cached").inc(usage.cached_tokens)
        self._tokens.labels(model, "completion").inc(usage.completion_tokens)

    def refused(self, engine: str, reason: str) -> None:
        """Counts an engine's refusal of a ticket of ours."""
        known = reason in set(Refusal)
        self._refusals.labels(engine, reason if known else "other").inc()

    def alarm(self, kind: str) -> None:
        """Counts something that must not happen."""
        self._alarms.labels(kind).inc()

    def render(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)


class EngineCollector(Collector):
    """Reads the state of the engines when Prometheus asks."""

    def __init__(self, replicas: Iterable[Replica]) -> None:
        self._replicas = replicas

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Whether each engine is routable and took the quotas, and how old its policy is."""
        routable = GaugeMetricFamily(
            "saltwall_engine_routable", "Whether requests may go there.", labels=["engine"]
        )
        age = GaugeMetricFamily(
            "saltwall_policy_age_seconds", "Since the engine's last lease.", labels=["engine"]
        )
        running = GaugeMetricFamily(
            "saltwall_engine_requests", "Requests of ours at the engine.", labels=["engine"]
        )
        quotas = GaugeMetricFamily(
            "saltwall_engine_quotas_current",
            "Whether the engine enforces the quotas as stored.",
            labels=["engine"],
        )
        for replica in self._replicas:
            quotas.add_metric([replica.label], float(not replica.quotas_problem))
            routable.add_metric([replica.label], float(replica.routable))
            running.add_metric([replica.label], float(replica.requests))
            if replica.acknowledged_at is not None:
                age.add_metric([replica.label], time.monotonic() - replica.acknowledged_at)
        yield from (routable, age, running, quotas)
