"""The trace replay drives vLLM's pool as it says, and its goals hold on a piece of the trace."""

import json
import subprocess
import sys
from collections import OrderedDict, defaultdict
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import mooncake
import pytest
import strategies
from replay import REFUSED, Replay, ServiceTime, at_once, overlapping
from sharing import Comparison, compare, immoderate
from strategies import Capacity
from workload import Workload, zipf

BLOCKS = 800  # a pool in which the requests below hit, miss and evict
CALLS = mooncake.read(600)


def workload(tenants: int) -> Workload:
    """The first requests of the trace, given to some tenants."""
    return Workload(CALLS, zipf(tenants, 1.0), seed=0)


def capacity(tenants: int, reserved: float) -> Capacity:
    """A small pool, a fraction of it reserved in equal parts."""
    return Capacity.of(BLOCKS, reserved, zipf(tenants, 1.0), by_demand=False)


def hits_of_an_lru(work: Workload, size: int) -> list[int]:
    """The hits of each request in one LRU list of `size` blocks, written without vLLM.

    A block is a line in `order`, the next to go first, under a number of its own: the same content
    may be cached twice. Blocks without content are not in it, and are used before any other.
    """
    order: OrderedDict[int, object] = OrderedDict()
    places: dict[object, list[int]] = defaultdict(list)  # of a content, the first cached first
    number = 0
    hits = []
    for index, call in enumerate(work.calls):
        tokens = call.input_length + call.output_length - 1
        whole_prompt = call.input_length // mooncake.BLOCK
        prompt = [(work.tenant_of[index], block) for block in call.blocks[:whole_prompt]]
        answer = [("answer", index, i) for i in range(whole_prompt, tokens // mooncake.BLOCK)]
        contents = [*prompt, *answer]
        found: list[int] = []
        for content in prompt[: (call.input_length - 1) // mooncake.BLOCK]:
            if not places[content]:
                break
            found.append(places[content][0])
        for place in found:
            del order[place]
        needed = -(-tokens // mooncake.BLOCK)
        while len(order) + needed > size:
            place, content = order.popitem(last=False)
            places[content].remove(place)
        mine = list(zip(found, contents, strict=False))
        for content in contents[len(found) :]:
            number += 1
            places[content].append(number)
            mine.append((number, content))
        order.update(reversed(mine))
        hits.append(len(found))
    return hits


def test_a_stock_pool_finds_what_an_independent_lru_finds() -> None:
    """One LRU hits, request by request, what forty lines without vLLM say it must."""
    work = workload(16)
    served = Replay(work, strategies.one_lru(capacity(16, 0.5)), at_once).run()
    expected = hits_of_an_lru(work, BLOCKS)
    assert [one.hits for one in served] == expected
    assert 0 < sum(expected) < sum(hits_of_an_lru(work, 10**6))  # the pool was too small for all


@pytest.mark.parametrize("tenants", [1, 16])
@pytest.mark.parametrize("service_time", [at_once, overlapping])
def test_without_reserves_the_elastic_pool_is_one_lru(
    tenants: int, service_time: ServiceTime
) -> None:
    """With nothing reserved, Saltwall serves each request exactly what stock serves it."""
    work, room = workload(tenants), capacity(tenants, 0)
    stock = Replay(work, strategies.one_lru(room), service_time).run()
    shelves = strategies.elastic(room)
    shelves[0].queue_per_tenant = False  # all in one line, as with stock
    assert Replay(work, shelves, service_time).run() == stock
    assert any(one.hits for one in stock)
    shelves[0].pool.check_integrity()


def test_strict_tenants_are_served_as_by_pools_of_their_own() -> None:
    """With reserve = ceiling, requests overlapping, each hits, waits and is refused as if alone."""
    work, room = workload(4), capacity(4, 1)
    shelves = strategies.strict(room)
    strict = Replay(work, shelves, overlapping).run()
    assert strict == Replay(work, strategies.static(room), overlapping).run()
    assert any(one.waited for one in strict)
    assert REFUSED in strict
    shelves[0].pool.check_integrity()


@pytest.fixture(scope="module")
def reduced() -> Comparison:
    """The comparison on 2,000 requests and a pool of a fifth of their distinct blocks."""
    calls = mooncake.read(2_000)
    shares = zipf(16, 1.0)
    room = Capacity.of(mooncake.footprint(calls) // 5, 0.5, shares, by_demand=False)
    work = Workload(calls, shares, seed=0)
    return compare(work, room, at_once, ("one LRU", "static", "elastic", "reserve alone"))


def test_the_goals_hold(reduced: Comparison) -> None:
    """Elastic keeps 0.97 of one LRU, and each of 16 tenants 0.99 of its reserve alone."""
    assert reduced.missed_goals() == []
    assert reduced.hits("elastic").rate > 1.1 * reduced.hits("static").rate
    assert len([t for t in reduced.tenants if reduced.over_reserve_alone(t)]) == 16


def test_the_goals_can_be_missed(reduced: Comparison) -> None:
    """Static partitions keep too little of one LRU; one LRU too little of somebody's reserve."""
    served = reduced.served
    divided = replace(reduced, served=served | {"elastic": served["static"]}, moderate={})
    assert "of one LRU" in " ".join(divided.missed_goals())
    shared = replace(reduced, served=served | {"elastic": served["one LRU"]}, moderate={})
    assert "its reserve alone" in " ".join(shared.missed_goals())


def test_a_refused_request_counts_as_a_miss() -> None:
    """Under every strategy the hit rate is over all prompts, also those that did not fit."""
    work, room = workload(16), capacity(16, 0.5)
    served = {"static": Replay(work, strategies.static(room), at_once).run()}
    hits = Comparison(work, room, served, {}).hits("static")
    assert hits.refused > 0
    assert hits.blocks == sum(len(call.blocks) for call in CALLS)


def test_only_requests_that_fit_are_sent_by_a_moderate_tenant() -> None:
    """The replay for a promise leaves out one tenant's large requests, and nobody else's."""
    work, room = workload(16), capacity(16, 0.5)
    tenant = immoderate(work, room)[0]
    served = Replay(work, strategies.elastic(room, tenant), at_once).run()
    left_out = [index for index, one in enumerate(served) if one == REFUSED]
    assert left_out == [
        index
        for index, owner in enumerate(work.tenant_of)
        if owner == tenant and work.blocks_needed(index) > room.reserves[tenant]
    ]


def test_the_command_writes_figures_and_a_chart(tmp_path: Path) -> None:
    """A short run prints the table, and leaves JSON and an SVG that can be read."""
    figures, chart = tmp_path / "figures.json", tmp_path / "chart.svg"
    command = [sys.executable, Path(__file__).parent / "trace", "--quick", "--tenants", "2"]
    command += ["--pools", "50", "--mode", "at-once", "--json", figures, "--svg", chart]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [result] = json.loads(figures.read_text())["results"]
    assert f"{result['over_one_lru']['elastic']:.3f}" in done.stdout
    dots = ElementTree.parse(chart).findall(".//{*}circle")  # noqa: S314 - the file is our own
    assert len(dots) == 2


def test_whoever_waits_is_served() -> None:
    """Requests that do not fit start as others end, in order of arrival, and none is lost."""
    work, room = workload(1), capacity(1, 0)
    served = Replay(work, strategies.one_lru(room), overlapping).run()
    starts = [call.at + one.waited for call, one in zip(CALLS, served, strict=True)]
    assert any(one.waited for one in served)
    assert starts == pytest.approx(sorted(starts))
    assert REFUSED not in served
