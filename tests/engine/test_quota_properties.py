"""vLLM's own scheduler and pool under quotas: what must hold whatever tenants and operators do."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from bare_core import BLOCK
from engine_life import TENANTS, EngineLife
from fake_engine import FakeEngine
from properties import effort, run_machine, seeds
from quota_watch import Watch

from saltwall_engine.ledger import Quota
from saltwall_engine.pool import NO_STORE

POOR, RICH = TENANTS[:2]
ASYNC = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
MOST_STEPS = 2
"""Steps that a request within its tenant's reserve and slots waits at most, with one such tenant
and tokens left in the step; one more for each further tenant that claims its own at that time."""

WITNESSED = (
    "finished",
    "own idle blocks recycled",
    "others' idle blocks taken",
    "preemptions for others",
)


@ASYNC
@pytest.mark.parametrize("number", seeds(2, 40))
def test_quotas_hold_whatever_happens(
    make_config: Callable[..., Any], asynchronous: bool, number: int
) -> None:
    """Ceilings, reserves, sums and charges hold at every step, and every request ends."""
    machine: Any = EngineLife
    machine.make_config = staticmethod(cache(make_config))
    machine.asynchronous = asynchronous
    machine.seen, machine.longest_wait = Counter(), []
    run_machine(machine, number, effort(30, 300), 40)
    for what in WITNESSED:
        assert machine.seen[what], f"no {what} among {machine.seen}"
    assert max(machine.longest_wait) <= MOST_STEPS + 4 * len(TENANTS)


def crowded(
    make_config: Callable[..., Any], asynchronous: bool, claimants: int, running: int = 16
) -> tuple[FakeEngine, Watch]:
    """An engine whose blocks, and slots if they are few, are all a borrower's, for long."""
    config = make_config(asynchronous=asynchronous, blocks=65, running=running, step_tokens=4096)
    engine = FakeEngine(config, TENANTS)
    watch = Watch(engine)
    for tenant in TENANTS[:claimants]:
        engine.scheduler.set_quota(tenant, Quota(16))
    for i in range(20):
        engine.submit(TENANTS[3], [i] * 4 * BLOCK, 9 * BLOCK)
    for _ in range(24):
        watch.step()
    assert engine.account(TENANTS[3]).pinned > 48 or running < 16
    return engine, watch


@ASYNC
@pytest.mark.parametrize("running", [16, 4], ids=["blocks", "slots"])
@pytest.mark.parametrize("claimants", [1, 3])
def test_a_tenant_within_its_reserve_is_served_in_bounded_steps(
    make_config: Callable[..., Any], asynchronous: bool, claimants: int, running: int
) -> None:
    """However long the borrowers' requests, who claims its reserve runs within a few steps."""
    engine, watch = crowded(make_config, asynchronous, claimants, running)
    names = [engine.submit(tenant, [99] * 16 * BLOCK, 2) for tenant in TENANTS[:claimants]]
    for _ in range(MOST_STEPS + claimants):
        watch.step()
    assert all(name in engine.cached for name in names)
    watch.finish()


@ASYNC
@pytest.mark.parametrize("whose", ["tenant", "request"])
def test_no_store_adds_nothing_to_the_cache(
    make_config: Callable[..., Any], asynchronous: bool, whose: str
) -> None:
    """A tenant, or a request, that does not store leaves no block behind, and finds none."""
    engine = FakeEngine(make_config(asynchronous=asynchronous), TENANTS)
    watch = Watch(engine)
    if whose == "tenant":
        engine.scheduler.set_quota(POOR, Quota(8, 16, store=False))
    extra = {NO_STORE: 1} if whose == "request" else {}
    for _ in range(2):
        name = engine.submit(POOR, [1] * 5 * BLOCK, 2 * BLOCK, **extra)
        engine.submit(RICH, [1] * 5 * BLOCK, 2 * BLOCK)
        while not engine.idle():
            watch.step()
        assert engine.cached[name] == 0
        assert engine.account(POOR).held == 0
    assert engine.account(RICH).idle > 0
    watch.finish()


def test_a_request_that_does_not_store_still_finds_what_is_cached(
    make_config: Callable[..., Any],
) -> None:
    """Only writing is opted out of: the prefix that the tenant has cached before is a hit."""
    engine = FakeEngine(make_config(), TENANTS)
    engine.submit(POOR, [1] * 5 * BLOCK, 1)
    name = engine.submit(POOR, [1] * 5 * BLOCK + [2] * 4 * BLOCK, 1, **{NO_STORE: 1})
    while not engine.idle():
        engine.step()
    assert engine.cached[name] in (0, 5 * BLOCK)
    again = engine.submit(POOR, [1] * 5 * BLOCK + [2] * 4 * BLOCK, 1, **{NO_STORE: 1})
    while not engine.idle():
        engine.step()
    assert engine.cached[again] == 5 * BLOCK
    assert engine.account(POOR).idle == 5


@ASYNC
def test_room_made_for_a_tenant_goes_to_that_tenant(
    make_config: Callable[..., Any], asynchronous: bool
) -> None:
    """Two borrowers hold all blocks and slots, and more waits: what is freed is not for them."""
    engine = FakeEngine(make_config(asynchronous=asynchronous, blocks=25, running=4), TENANTS)
    watch = Watch(engine)
    engine.scheduler.set_quota(POOR, Quota(7))
    for i in range(18):
        engine.scheduler.set_quota(TENANTS[2 + i % 2], Quota(1))
        engine.submit(TENANTS[2 + i % 2], [i] * 51, 66)
    for _ in range(19):
        watch.step()
    name = engine.submit(POOR, [99] * 81, 2)
    for _ in range(MOST_STEPS + 1):
        watch.step()
    assert name in engine.cached
    watch.finish()


@ASYNC
def test_what_no_longer_fits_is_refused_before_it_runs(
    make_config: Callable[..., Any], asynchronous: bool
) -> None:
    """A ceiling lowered under the need of a request that waits ends it with an error, unserved."""
    engine = FakeEngine(make_config(asynchronous=asynchronous, running=2), TENANTS)
    watch = Watch(engine)
    name = engine.submit(POOR, [1] * BLOCK, 2 * BLOCK)
    engine.submit(RICH, [2] * 4, 25)
    engine.scheduler.set_quota(POOR, Quota(0, 2))
    for _ in range(4):
        watch.step()
    assert (engine.finished[name], engine.tokens[name]) == ("error", 0)
    watch.finish()


@ASYNC
def test_an_admitted_request_ends_under_the_ceiling_it_had(
    make_config: Callable[..., Any], asynchronous: bool
) -> None:
    """A ceiling lowered under the need of a request that runs takes nothing from it."""
    engine = FakeEngine(make_config(asynchronous=asynchronous, running=2), TENANTS)
    watch = Watch(engine)
    name = engine.submit(POOR, [1] * BLOCK, 2 * BLOCK)
    watch.step()
    engine.scheduler.set_quota(POOR, Quota(0, 1))
    later = engine.submit(POOR, [3] * 8, 2)
    while name not in engine.finished:
        watch.step()
        assert later not in engine.cached
    assert (engine.finished[name], engine.tokens[name]) == ("length", 2 * BLOCK)
    assert engine.account(POOR).held <= 1
    watch.finish()
    assert engine.finished[later] == "length"


@ASYNC
def test_a_lowered_ceiling_takes_idle_blocks_at_once(
    make_config: Callable[..., Any], asynchronous: bool
) -> None:
    """What a tenant holds idle above its new ceiling is free when the quota is set."""
    engine = FakeEngine(make_config(asynchronous=asynchronous), TENANTS)
    engine.submit(POOR, [1] * 6 * BLOCK, 1)
    while not engine.idle():
        engine.step()
    assert engine.account(POOR).idle == 6
    engine.scheduler.set_quota(POOR, Quota(0, 2))
    assert engine.account(POOR).idle == 2
    engine.scheduler.check_integrity()


@ASYNC
def test_an_answer_is_cached_with_its_prompt(
    make_config: Callable[..., Any], asynchronous: bool
) -> None:
    """The next turn of a conversation finds the blocks that the last answer filled."""
    engine = FakeEngine(make_config(asynchronous=asynchronous), TENANTS)
    name = engine.submit(POOR, [1] * 2 * BLOCK, 3 * BLOCK)
    request = engine.live[name]
    while not engine.idle():
        engine.step()
    turn = engine.submit(POOR, [*request.all_token_ids, *[2] * BLOCK], 1)
    while not engine.idle():
        engine.step()
    assert engine.cached[turn] == 4 * BLOCK
