"""Tenants share the engine by weight, and nobody waits behind another tenant's requests."""

from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from bare_core import ACME, BLOCK, GLOBEX, Core, grant
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from saltwall_engine.ledger import Quota
from saltwall_engine.waiting import PROBES_PER_STEP, RECENT_S, TenantQueue

MakeCore = Callable[..., Core]


def prompt(seed: int, blocks: int) -> list[int]:
    """A prompt of so many whole blocks, shared with no other seed."""
    return [seed] * (blocks * BLOCK)


def add(core: Core, tenant: UUID, seed: int, blocks: int, output: int = 1) -> Any:
    """Sends a request as EngineCore does after its checks."""
    request = core.request(prompt(seed, blocks), grant(tenant), max_tokens=output, ignore_eos=True)
    core.scheduler.add_request(request)
    return request


def running(core: Core) -> Counter[UUID]:
    """The number of running requests by tenant."""
    return Counter(r.cache_salt.grant.owner.tenant for r in core.scheduler.running)


def steps_until(core: Core, done: Callable[[], bool], most: int) -> int:
    """Steps until something holds, failing after `most`."""
    for count in range(1, most + 1):
        core.step()
        core.scheduler.check_integrity()
        if done():
            return count
    pytest.fail(f"not after {most} steps")


def test_backlogged_tenants_are_served_by_weight(make_core: MakeCore) -> None:
    """Two tenants that always have work, weights 1 and 3: served tokens are 1 to 3."""
    core = make_core(running=2, blocks=200, step_tokens=64)
    core.scheduler.set_quota(GLOBEX, Quota(weight=3.0))
    for i in range(80):
        add(core, ACME, 100 + i, 4)
        add(core, GLOBEX, 500 + i, 4)
    for _ in range(80):
        core.step()
    ledger = core.scheduler.ledger
    acme, globex = ledger.account(ACME), ledger.account(GLOBEX)
    assert acme.waiting > 0
    assert globex.waiting > 0
    assert abs(acme.tokens - globex.tokens) <= 2 * 4 * BLOCK
    served = (globex.tokens * 3) / acme.tokens
    assert 2.5 <= served <= 3.5


def test_idleness_earns_no_credit(make_core: MakeCore) -> None:
    """A tenant that comes back starts at the least counter of who waits, not at its old one."""
    core = make_core(running=2, blocks=200)
    core.serve(core.request(prompt(1, 1), grant(GLOBEX)))
    for i in range(30):
        add(core, ACME, 10 + i, 8)
    for _ in range(20):
        core.step()
    ledger = core.scheduler.ledger
    assert ledger.account(ACME).tokens > 1000
    add(core, GLOBEX, 99, 1)
    assert ledger.account(GLOBEX).tokens == ledger.account(ACME).tokens


def test_a_running_generation_saves_up_no_credit(make_core: MakeCore) -> None:
    """acme keeps one generation alive while globex works; its flood then delays globex by steps."""
    core = make_core(running=16, blocks=2000, model_len=2048)
    add(core, ACME, 1, 2, output=1500)
    for i in range(40):
        add(core, GLOBEX, 10 + i, 50)
    steps_until(core, lambda: not core.scheduler.ledger.account(GLOBEX).live, 200)
    for i in range(60):
        add(core, ACME, 100 + i, 25)
    core.step()
    request = add(core, GLOBEX, 999, 50)
    assert steps_until(core, request.is_finished, 12) <= 12


def test_heads_that_do_not_fit_hide_nobody(make_core: MakeCore) -> None:
    """Twenty tenants whose heads are too large for now do not keep a slot from another."""
    core = make_core(running=8, blocks=330, model_len=2048)
    for i in range(12):
        add(core, ACME, i, 30, output=1000)
    steps_until(core, lambda: len(core.scheduler.running) == 8, 20)
    for i in range(20):
        add(core, UUID(int=1000 + i), 100 + i, 110)
    core.step()
    request = add(core, GLOBEX, 999, 4)
    assert steps_until(core, request.is_finished, 8) <= 8


def test_a_tenant_at_its_ceiling_is_not_reclaimed_for(make_core: MakeCore) -> None:
    """What waits for room under its own ceiling takes no blocks and no tokens from others."""
    core = make_core(running=8, blocks=65)
    core.scheduler.set_quota(ACME, Quota(reserve=8, ceiling=9))
    add(core, ACME, 1, 5, output=60)
    core.step()
    add(core, ACME, 2, 6)
    core.step()
    assert not core.scheduler.waiting.urgent
    request = add(core, GLOBEX, 999, 20)
    assert steps_until(core, request.is_finished, 2) <= 2


def test_tiny_requests_do_not_take_all_slots(make_core: MakeCore) -> None:
    """acme's one-token requests, however many, leave globex its half of the slots and steps."""
    core = make_core(running=8, blocks=2000, model_len=2048)
    seed = iter(range(10**6))
    for _ in range(400):
        request = core.request([next(seed) % 900] * 3, grant(ACME))
        core.scheduler.add_request(request)
    core.step()
    for i in range(5):
        request = add(core, GLOBEX, 900 + i, 60)
        assert steps_until(core, request.is_finished, 12) <= 12


def test_a_raised_weight_does_not_hold_its_tenant_up(make_core: MakeCore) -> None:
    """What globex was served under a tiny weight is not held against it under a larger one."""
    core = make_core(running=16, blocks=2000, model_len=2048)
    core.scheduler.set_quota(GLOBEX, Quota(weight=0.01))
    for i in range(60):
        add(core, ACME, 100 + i, 25)
    first = add(core, GLOBEX, 1, 60)
    steps_until(core, first.is_finished, 60)
    core.scheduler.set_quota(GLOBEX, Quota(weight=1.0))
    request = add(core, GLOBEX, 2, 60)
    assert steps_until(core, request.is_finished, 15) <= 15


def test_changed_weights_do_not_cost_a_look_at_all_that_wait(
    make_core: MakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is put where it belongs now."""
    from saltwall_engine import waiting

    core = make_core(running=2, blocks=200)
    tenants = [UUID(int=1000 + number) for number in range(50)]
    for number, tenant in enumerate(tenants):
        add(core, tenant, number, 1)
        core.scheduler.ledger.account(tenant).tokens = 100.0 + number
    core.step()
    placed: list[Any] = []
    place = waiting.insort
    monkeypatch.setattr(waiting, "insort", lambda *args: placed.append(args) or place(*args))
    core.scheduler.set_quotas([(tenant, Quota(weight=2.0)) for tenant in tenants[10:20]])
    assert len(placed) <= 10
    core.scheduler.check_integrity()
    served = [core.scheduler.ledger.account(tenant) for tenant in tenants]
    steps_until(core, lambda: not any(account.live for account in served), 200)


def test_a_changed_weight_leaves_no_entry_of_a_line_that_was_emptied(make_core: MakeCore) -> None:
    """Under the old weight it would stand too late for what comes next."""
    core = make_core(running=1)
    add(core, ACME, 1, 1, output=20)
    core.step()
    add(core, ACME, 2, 1)
    core.scheduler.ledger.account(GLOBEX).tokens = 1000.0
    request = add(core, GLOBEX, 3, 1)
    core.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
    core.scheduler.set_quota(GLOBEX, Quota(weight=100.0))
    core.scheduler.check_integrity()
    add(core, GLOBEX, 4, 1)
    core.scheduler.check_integrity()


def test_a_preemption_storm_costs_no_more_looks_than_victims(make_core: MakeCore) -> None:
    """256 requests that cross a block boundary at once are looked at a few times, not 256."""
    core = make_core(running=256, blocks=256 + 41, step_tokens=4096)
    for i in range(256):
        add(core, ACME, i, 1, output=40)
    looks: Counter[int] = Counter()
    pins = type(core.scheduler).pins

    def counted(scheduler: Any, request: Any, *args: Any) -> int:
        looks[scheduler.current_step] += 1
        return pins(scheduler, request, *args)

    type(core.scheduler).pins = counted
    try:
        for _ in range(40):
            core.step()
    finally:
        type(core.scheduler).pins = pins
    assert core.scheduler.ledger.account(ACME).preemptions_suffered > 50
    assert max(looks.values()) <= 4 * 256


def test_a_flood_of_one_tenant_delays_another_by_no_queue(make_core: MakeCore) -> None:
    """Behind 200 queued requests of acme, globex's first is admitted within two steps."""
    core = make_core(running=4, blocks=200)
    for i in range(200):
        add(core, ACME, i, 4)
    core.step()
    request = add(core, GLOBEX, 999, 4)
    assert steps_until(core, request.is_finished, 3) <= 3


def test_stock_serves_the_whole_queue_first(make_core: MakeCore) -> None:
    """The same flood on stock's scheduler: globex waits for acme's queue."""
    core = make_core(Scheduler, running=4, blocks=200)
    for i in range(200):
        add(core, ACME, i, 4)
    core.step()
    request = add(core, GLOBEX, 999, 4)
    for _ in range(20):
        core.step()
    assert not request.is_finished()


def test_slots_are_taken_back_from_who_has_too_many(make_core: MakeCore) -> None:
    """acme's long generations hold all slots; globex comes to its half, and no more."""
    core = make_core(running=8, blocks=400)
    for i in range(20):
        add(core, ACME, i, 2, output=400)
    core.step()
    assert running(core) == {ACME: 8}
    for i in range(20):
        add(core, GLOBEX, 100 + i, 2, output=400)
    steps_until(core, lambda: running(core)[GLOBEX] >= 1, 2)
    steps_until(core, lambda: running(core)[GLOBEX] == 4, 40)
    before = core.scheduler.ledger.account(ACME).preemptions_suffered
    for _ in range(10):
        core.step()
    assert running(core) == {ACME: 4, GLOBEX: 4}
    assert core.scheduler.ledger.account(ACME).preemptions_suffered == before


def test_blocks_within_a_reserve_are_reclaimed_at_once(make_core: MakeCore) -> None:
    """acme has borrowed the whole pool; globex, within its reserve, is admitted in two steps."""
    core = make_core(running=16, blocks=65)
    core.scheduler.set_quota(GLOBEX, Quota(reserve=24))
    for i in range(12):
        add(core, ACME, i, 5, output=200)
    steps_until(core, lambda: core.scheduler.ledger.supply < 4, 300)
    request = add(core, GLOBEX, 100, 20)
    assert steps_until(core, request.is_finished, 3) <= 3
    ledger = core.scheduler.ledger
    assert ledger.account(ACME).preemptions_suffered > 0
    assert ledger.account(GLOBEX).preemptions_caused > 0


def test_without_a_reserve_nothing_is_reclaimed(make_core: MakeCore) -> None:
    """The same request without a reserve waits for acme's to finish: reclaim is what helped."""
    core = make_core(running=16, blocks=65)
    for i in range(12):
        add(core, ACME, i, 5, output=200)
    steps_until(core, lambda: core.scheduler.ledger.supply < 4, 300)
    request = add(core, GLOBEX, 100, 20)
    for _ in range(10):
        core.step()
    assert not request.is_finished()
    assert request.num_computed_tokens == 0


def test_a_tenant_within_its_reserve_is_never_preempted(make_core: MakeCore) -> None:
    """globex runs within its reserve while acme and others grow: only borrowers give way."""
    core = make_core(running=16, blocks=65)
    core.scheduler.set_quota(GLOBEX, Quota(reserve=30))
    kept = [add(core, GLOBEX, 100 + i, 4, output=100) for i in range(2)]
    for i in range(12):
        add(core, ACME, i, 5, output=150)
    steps_until(core, lambda: all(r.is_finished() for r in kept), 400)
    ledger = core.scheduler.ledger
    assert ledger.account(GLOBEX).preemptions_suffered == 0
    assert ledger.account(ACME).preemptions_suffered > 0


def test_a_ceiling_holds_up_its_own_tenant_alone(make_core: MakeCore) -> None:
    """acme at its ceiling waits for itself; globex, behind it in time, is served at once."""
    core = make_core(running=16, blocks=65)
    core.scheduler.set_quota(ACME, Quota(ceiling=12))
    first = [add(core, ACME, i, 5, output=100) for i in range(6)]
    core.step()
    assert running(core) == {ACME: 2}
    request = add(core, GLOBEX, 100, 20)
    steps_until(core, request.is_finished, 2)
    steps_until(core, lambda: all(r.is_finished() for r in first), 2000)
    assert core.scheduler.ledger.account(ACME).held <= 12


def test_admitted_requests_finish_under_the_ceiling_they_had(make_core: MakeCore) -> None:
    """A ceiling lowered under what runs stops nothing that runs, and admits nothing above it."""
    core = make_core(running=16, blocks=65)
    old = [add(core, ACME, i, 5, output=40) for i in range(3)]
    core.step()
    core.scheduler.set_quota(ACME, Quota(ceiling=8))
    new = add(core, ACME, 50, 5, output=20)
    steps_until(core, lambda: all(r.is_finished() for r in old), 60)
    assert [r.num_output_tokens for r in old] == [40, 40, 40]
    assert all(r.num_preemptions == 0 for r in old)
    assert core.scheduler.ledger.account(ACME).pinned <= 8
    steps_until(core, new.is_finished, 60)
    core.scheduler.check_integrity()


async def test_what_never_fits_is_refused_and_what_is_open_is_clamped(make_core: MakeCore) -> None:
    """Over the ceiling: an explicit length ends the request, an open one is lowered to fit."""
    from saltwall_engine import engine_core

    core = make_core(running=16, blocks=65)
    core.scheduler.set_quota(ACME, Quota(ceiling=4))
    core_add = engine_core._stock_add
    explicit = core.request(prompt(1, 3), grant(ACME), max_tokens=40)
    open_end = core.request(prompt(2, 3), grant(ACME), max_tokens=512 - 3 * BLOCK)
    try:
        engine_core._stock_add = lambda core, request, wave: core.scheduler.add_request(request)
        engine_core.add_request(core, explicit)
        engine_core.add_request(core, open_end)
    finally:
        engine_core._stock_add = core_add
    assert core.refused == [explicit.request_id]
    assert open_end.max_tokens == BLOCK + 1
    assert explicit.request_id not in core.scheduler.requests


def test_a_request_that_no_longer_fits_ends_with_an_error(make_core: MakeCore) -> None:
    """A reserve given to another while a large request waits does not let it wait for ever."""
    core = make_core(running=16, blocks=65, model_len=1024)
    core.serve(core.request(prompt(1, 34), grant(GLOBEX)))
    core.scheduler.set_quota(GLOBEX, Quota(reserve=50))
    large = add(core, ACME, 2, 35)
    small = add(core, ACME, 3, 2)
    steps_until(core, lambda: large.is_finished() and small.is_finished(), 4)
    assert large.status.name == "FINISHED_ERROR"
    assert small.status.name == "FINISHED_LENGTH_CAPPED"
    assert core.scheduler.ledger.account(GLOBEX).idle == 34


def test_parked_lines_cost_a_bounded_number_of_looks(make_core: MakeCore) -> None:
    """With 300 blocked tenants, a step looks at some dozens, and everybody is served."""
    core = make_core(running=16, blocks=65, model_len=1024)
    scheduler = core.scheduler
    tenants = [UUID(int=1000 + i) for i in range(300)]
    add(core, ACME, 1, 50, output=200)
    core.step()
    core.step()
    waiting = [add(core, tenant, 2 + i, 30) for i, tenant in enumerate(tenants)]
    for _ in range(20):
        core.step()
    assert running(core) == {ACME: 1}
    looks: list[Any] = []
    allowance = type(scheduler.ledger).allowance

    def counted(ledger: Any, account: Any, *args: Any) -> int:
        looks.append(account)
        return allowance(ledger, account, *args)

    type(scheduler.ledger).allowance = counted
    try:
        core.step()
    finally:
        type(scheduler.ledger).allowance = allowance
    assert PROBES_PER_STEP <= len(looks) <= 2 * PROBES_PER_STEP
    steps_until(core, lambda: all(r.is_finished() for r in waiting), 5000)


def test_steps_stay_bounded_while_another_was_there_a_minute_ago(make_core: MakeCore) -> None:
    """A tenant alone has the whole step only once the others have been gone for a minute."""
    core = make_core()
    now = [0.0]
    pool = core.scheduler.kv_cache_manager.block_pool
    queue = TenantQueue(pool, SchedulingPolicy.FCFS, clock=lambda: now[0])
    acme, globex = pool.ledger.account(ACME), pool.ledger.account(GLOBEX)
    queue.arrive(acme)
    assert not queue.contended
    queue.arrive(globex)
    assert queue.contended
    queue.leave(globex)
    now[0] = RECENT_S - 1
    assert queue.contended
    now[0] = RECENT_S + 1
    assert not queue.contended


async def test_a_lowered_ceiling_is_in_force_without_any_step(make_core: MakeCore) -> None:
    """An idle engine gives up what its tenants hold above a lowered ceiling, call by call."""
    core = make_core(running=4, blocks=900, step_tokens=2048, model_len=2048)
    for i in range(8):
        core.serve(core.request(prompt(i, 100), grant(ACME)))
    ledger = core.scheduler.ledger
    assert ledger.account(ACME).idle == 800
    await core.call_utility_async("saltwall_set_quotas", [[ACME.hex, 0, 10, 1.0, True]])
    calls = 1
    while await core.call_utility_async("saltwall_trim"):
        calls += 1
    assert calls > 1
    assert ledger.account(ACME).held == 10
    core.scheduler.check_integrity()
