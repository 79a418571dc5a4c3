"""Counters compare what competing tenants were served: there is no credit and no debt besides.

Each test has a tenant that games the counters, or the tokens and slots that a step keeps, and
counts the steps that another one's small request takes.
"""

import pytest
from timed_engine import STEP_TOKENS, TENANTS, MakeEngine, TimedEngine, prompt, steps

from saltwall_engine.ledger import Quota

ASYNC = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
GREEDY, VICTIM, *HELPERS = TENANTS


def flood(engine: TimedEngine) -> None:
    """The greedy tenant keeps a queue."""
    while engine.account(GREEDY).waiting < 32:
        engine.submit(GREEDY, prompt(400), 1)


def flooded(engine: TimedEngine, tokens: int = 300) -> int:
    """Steps that the victim's small request takes beside a flood that begins now."""
    flood(engine)
    engine.step()
    name = engine.submit(VICTIM, prompt(tokens), 1)
    for taken in range(600):
        if name in engine.finished:
            return taken
        flood(engine)
        engine.step()
    return 600


@ASYNC
def test_what_is_decoded_while_nobody_waits_is_no_debt(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    """The victim has had the engine for itself for long; then another one floods it."""
    engine = make_engine(asynchronous=asynchronous, running=64)
    engine.submit(GREEDY, prompt(50), 1)
    for _ in range(32):
        engine.submit(VICTIM, prompt(100), 6000)
    for _ in range(300):
        engine.step()
    assert engine.account(VICTIM).tokens > 10 * STEP_TOKENS
    assert flooded(engine) <= 6


@ASYNC
def test_a_head_that_waits_for_its_own_ceiling_saves_up_no_credit(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    """A line that is never empty, behind one cheap generation, while the victim works."""
    engine = make_engine(asynchronous=asynchronous)
    engine.scheduler.set_quota(GREEDY, Quota(0, 200))
    running = engine.submit(GREEDY, prompt(1600), 1500)
    for _ in range(12):
        engine.step()
    parked = engine.submit(GREEDY, prompt(2000), 1)
    for _ in range(30):
        name = engine.submit(VICTIM, prompt(1000), 1)
        steps(engine, lambda name=name: name in engine.finished)
    assert parked in engine.live
    assert engine.account(VICTIM).tokens > engine.account(GREEDY).tokens + 10 * STEP_TOKENS
    engine.abort([running, parked])
    assert flooded(engine) <= 6


@ASYNC
def test_a_head_that_waits_for_its_grammar_keeps_no_tokens(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    """Nor a slot: whoever waits for a compiler takes nothing from others meanwhile."""
    from vllm.v1.request import RequestStatus

    engine = make_engine(asynchronous=asynchronous, running=4)
    name = engine.submit(GREEDY, prompt(6000), 1)
    engine.live[name].status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    victim = engine.submit(VICTIM, prompt(300), 1)
    assert steps(engine, lambda: victim in engine.finished) <= 4
    for _ in range(4):
        engine.submit(VICTIM, prompt(20), 200)
    for _ in range(40):
        engine.step()
    assert engine.account(VICTIM).preemptions_suffered == 0


@ASYNC
def test_a_head_that_does_not_fit_keeps_no_tokens(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    """Sent again each step, it would hold up the victim's prompt for ever."""
    engine = make_engine(asynchronous=asynchronous, running=16)
    engine.scheduler.set_quota(GREEDY, Quota(0, 500))
    engine.submit(GREEDY, prompt(200), 7000)
    steps(engine, lambda: engine.account(GREEDY).pinned > 12)
    victim = engine.submit(VICTIM, prompt(6000), 1)
    churned: list[str] = []
    taken = 0
    while victim not in engine.finished and taken < 100:
        engine.abort(churned)
        churned = [engine.submit(GREEDY, prompt(7790), 1) or ""]
        engine.step()
        taken += 1
    assert taken <= 30


@ASYNC
def test_many_small_requests_get_as_much_as_few_large_ones(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    """Counters of two tenants that always have work differ by a step and a request."""
    engine = make_engine(asynchronous=asynchronous, blocks=8000)
    for _ in range(100):
        while engine.account(GREEDY).waiting < 4:
            engine.submit(GREEDY, prompt(4000), 1)
        while engine.account(VICTIM).waiting < 100:
            engine.submit(VICTIM, prompt(16), 1)
        engine.step()
    apart = engine.account(GREEDY).tokens - engine.account(VICTIM).tokens
    assert engine.account(GREEDY).tokens > 10 * STEP_TOKENS
    assert abs(apart) <= 4000 + 2 * STEP_TOKENS


@ASYNC
def test_as_many_light_tenants_as_slots_do_not_shut_out_a_heavy_one(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    """Each has one long generation; the victim's weight is worth nearly all slots."""
    engine = make_engine(asynchronous=asynchronous, running=16)
    for helper in HELPERS[:16]:
        engine.scheduler.set_quota(helper, Quota(weight=0.01))
        engine.submit(helper, prompt(20), 3000)
    engine.step()
    victim = engine.submit(VICTIM, prompt(100), 1)
    assert steps(engine, lambda: victim in engine.finished) <= 4


def test_more_tenants_than_slots_take_turns(make_engine: MakeEngine) -> None:
    """Nobody has a whole slot by right: a generation gives way once it has had its turn."""
    engine = make_engine(running=16)
    for helper in HELPERS[:16]:
        engine.submit(helper, prompt(20), 3000)
    engine.step()
    victim = engine.submit(VICTIM, prompt(100), 1)
    waited = steps(engine, lambda: victim in engine.finished, 3000)
    assert 50 <= waited <= 1000
    assert sum(engine.account(helper).preemptions_suffered for helper in HELPERS) == 1


def test_heads_that_have_their_slots_do_not_hide_one_that_has_none(
    make_engine: MakeEngine,
) -> None:
    """Eight tenants at their share, with lower counters, wait before the victim."""
    engine = make_engine(blocks=8000)
    for helper in HELPERS[:8]:
        for _ in range(3):
            engine.submit(helper, prompt(20), 6000)
    for _ in range(4):
        engine.step()
    for _ in range(32):
        engine.submit(GREEDY, prompt(20), 6000)
    for _ in range(6):
        engine.step()
    for helper in HELPERS[:8]:
        engine.submit(helper, prompt(20), 6000)
    engine.step()
    victim = engine.submit(VICTIM, prompt(100), 1)
    engine.account(VICTIM).tokens += 2000
    assert steps(engine, lambda: victim in engine.finished) <= 6


def test_a_preempted_request_that_quotas_outgrew_fails_though_others_run(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its minute, and its tenant's next request is served."""
    from saltwall_engine import scheduler

    engine = make_engine(blocks=101, running=8, step_tokens=512, model_len=2048)
    other, third = HELPERS[:2]
    large = engine.submit(GREEDY, prompt(600), 800)
    for _ in range(10):
        engine.step()
    engine.scheduler.set_quota(other, Quota(60))
    while not engine.account(GREEDY).preemptions_suffered:
        if engine.account(other).live < 4:
            engine.submit(other, prompt(200), 200)
        engine.step()
    engine.submit(third, prompt(20), 1500)
    small = engine.submit(GREEDY, prompt(20), 1)
    for _ in range(3 * 16):
        engine.step()
    assert large in engine.live
    later = scheduler.time.monotonic() + scheduler.OUTGROWN_S + 1
    monkeypatch.setattr(scheduler.time, "monotonic", lambda: later)
    assert steps(engine, lambda: small in engine.finished, 100) < 100
    assert engine.finished[large] == "error"


def test_what_was_admitted_under_a_higher_ceiling_is_resumed_under_it(
    make_engine: MakeEngine,
) -> None:
    """Preempted once, and its tenant's ceiling lowered: it comes back when there is room."""
    engine = make_engine(blocks=101, running=8, step_tokens=512, model_len=2048)
    other, third = HELPERS[:2]
    large = engine.submit(GREEDY, prompt(500), 150)
    for _ in range(60):
        engine.step()
    engine.scheduler.set_quota(GREEDY, Quota(0, 20))
    engine.scheduler.set_quota(other, Quota(80))
    names = []
    while not engine.account(GREEDY).preemptions_suffered:
        if engine.account(other).live < 4:
            names.append(engine.submit(other, prompt(250), 200))
        engine.step()
    engine.submit(third, prompt(20), 3000)
    engine.scheduler.set_quota(other, Quota(0))
    engine.abort([name for name in names if name in engine.live])
    assert steps(engine, lambda: large in engine.finished, 1000) < 300
    assert engine.finished[large] == "length"
