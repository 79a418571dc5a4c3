"""Prometheus gets a bounded number of series, and no counter that falls."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from saltwall_engine.metrics import OTHER, TenantMetrics
from saltwall_engine.usage import FIELDS

COUNTERS = {
    'saltwall_tenant_prompt_tokens_total{cache="hit"}': "hit_tokens",
    'saltwall_tenant_prompt_tokens_total{cache="miss"}': "missed_tokens",
    'saltwall_tenant_evictions_total{side="caused"}': "evictions_caused",
    'saltwall_tenant_evictions_total{side="suffered"}': "evictions_suffered",
    'saltwall_tenant_preemptions_total{side="caused"}': "preemptions_caused",
    'saltwall_tenant_preemptions_total{side="suffered"}': "preemptions_suffered",
}


def row(**fields: Any) -> dict[str, Any]:
    """A tenant's usage, nothing unless said."""
    empty = dict.fromkeys(FIELDS, 0) | {"weight": 1.0, "store": True, "ceiling": None}
    made: dict[str, Any] = empty | fields
    return made | {"held": made["pinned"] + made["idle"]}


def usage(tenants: dict[str, Any]) -> dict[str, Any]:
    """An engine's usage."""
    return {
        "tenants": tenants,
        "blocks": {"total": 320, "free": 300},
        "alarms": {"in_loop_shortfall": 0},
        "erasure": {"erased": 5},
        "refusals": {"quota": 3},
        "quotas": {"epoch": 7},
    }


def samples(text: bytes) -> Iterator[tuple[str, str | None, float]]:
    """Each sample's name with its other labels, its tenant and its value."""
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            tenant = labels.pop("tenant", None)
            shown = ",".join(f'{k}="{v}"' for k, v in sorted(labels.items()))
            yield f"{sample.name}{{{shown}}}" if shown else sample.name, tenant, sample.value


def of(metrics: TenantMetrics, tenants: dict[str, Any]) -> dict[tuple[str, str | None], float]:
    """What is rendered, by sample and tenant."""
    found = {
        (name, tenant): value for name, tenant, value in samples(metrics.render(usage(tenants)))
    }
    assert len(found) == len(list(samples(metrics.render(usage(tenants)))))
    return found


def test_a_tenant_has_its_series() -> None:
    """Blocks, requests, age, counters; a ceiling only where there is one."""
    found = of(
        TenantMetrics(),
        {
            "aa": row(
                pinned=3, idle=5, reserve=4, ceiling=9, running=2, waiting=1, waiting_age_s=1.5
            ),
            "bb": row(hit_tokens=10, missed_tokens=20, evictions_caused=1, preemptions_suffered=2),
        },
    )
    expected = {
        ('saltwall_tenant_kv_blocks{state="pinned"}', "aa"): 3,
        ('saltwall_tenant_kv_blocks{state="idle"}', "aa"): 5,
        ("saltwall_tenant_reserve_blocks", "aa"): 4,
        ("saltwall_tenant_ceiling_blocks", "aa"): 9,
        ('saltwall_tenant_requests{state="running"}', "aa"): 2,
        ('saltwall_tenant_requests{state="waiting"}', "aa"): 1,
        ("saltwall_tenant_waiting_age_seconds", "aa"): 1.5,
        ('saltwall_tenant_prompt_tokens_total{cache="hit"}', "bb"): 10,
        ('saltwall_tenant_prompt_tokens_total{cache="miss"}', "bb"): 20,
        ('saltwall_tenant_evictions_total{side="caused"}', "bb"): 1,
        ('saltwall_tenant_preemptions_total{side="suffered"}', "bb"): 2,
        ('saltwall_kv_blocks{kind="free"}', None): 300,
        ('saltwall_alarms_total{kind="in_loop_shortfall"}', None): 0,
        ('saltwall_refusals_total{reason="quota"}', None): 3,
        ("saltwall_quotas_epoch", None): 7,
        ("saltwall_tenants", None): 2,
    }
    assert expected.items() <= found.items()
    assert ("saltwall_tenant_ceiling_blocks", "bb") not in found
    assert OTHER not in {tenant for _, tenant in found}


def test_ten_thousand_tenants_have_fifty_series_and_a_rest() -> None:
    """Those that hold most; the rest is summed, and its age is that of whoever waits longest."""
    many = {f"{i:04}": row(idle=i, waiting=1, waiting_age_s=i / 1e4) for i in range(10_000)}
    found = of(TenantMetrics(), many)
    named = {tenant for _, tenant in found} - {None}
    assert named == {f"{i:04}" for i in range(9950, 10_000)} | {OTHER}
    assert found['saltwall_tenant_kv_blocks{state="idle"}', OTHER] == sum(range(9950))
    assert found['saltwall_tenant_requests{state="waiting"}', OTHER] == 9950
    assert found["saltwall_tenant_waiting_age_seconds", OTHER] == pytest.approx(0.9949)
    assert ("saltwall_tenant_ceiling_blocks", OTHER) not in found


def test_the_number_of_tenants_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the engine's environment."""
    monkeypatch.setenv("SALTWALL_ENGINE_METRICS_TENANTS", "1")
    found = of(TenantMetrics(), {"aa": row(idle=1), "bb": row(idle=2)})
    assert {tenant for _, tenant in found} - {None} == {"bb", OTHER}


steps = st.lists(
    st.dictionaries(
        st.sampled_from("abcd"),
        st.tuples(st.integers(0, 9), st.integers(0, 5)),
        min_size=1,
    ),
    max_size=8,
)


@settings(deadline=None)
@given(steps)
def test_no_counter_falls_and_none_is_counted_twice(
    steps: list[dict[str, tuple[int, int]]],
) -> None:
    """Whoever gains and loses series: each only grows, and together by no more than was counted."""
    metrics = TenantMetrics(2)
    before: dict[str | None, float] = {}
    now: dict[str, dict[str, Any]] = {}
    for step in steps:
        grown = 0
        for tenant, (held, tokens) in step.items():
            counted = now.get(tenant, {}).get("hit_tokens", 0) + tokens
            now[tenant] = row(idle=held, hit_tokens=counted)
            grown += tokens
        found = {
            tenant: value
            for (name, tenant), value in of(metrics, now).items()
            if name == 'saltwall_tenant_prompt_tokens_total{cache="hit"}'
        }
        for tenant in found.keys() & before.keys():
            assert found[tenant] >= before[tenant]
        seen = sum(found[t] - before[t] for t in found.keys() & before.keys())
        assert seen <= grown
        before |= found


def test_every_counter_is_carried_on_in_the_rest() -> None:
    """A tenant that loses its series goes on counting in `other`, from where it was."""
    metrics = TenantMetrics(1)
    first = dict.fromkeys(COUNTERS.values(), 100)
    of(metrics, {"aa": row(idle=2, **first), "bb": row(idle=1)})
    later = {name: value + 7 for name, value in first.items()}
    found = of(metrics, {"aa": row(idle=1, **later), "bb": row(idle=2)})
    assert {found[name, OTHER] for name in COUNTERS} == {7}
