"""A step's tokens, slots and looks are shared whatever a tenant keeps waiting, and however fast.

Each test has a tenant that keeps prompts, decodes or dead requests in the way, and counts the steps
that another one's small request takes, or what its running requests miss.
"""

from typing import Any

import pytest
from timed_engine import TENANTS, MakeEngine, TimedEngine, count_looks, prompt, steps
from vllm.v1.request import RequestStatus

from saltwall_engine.ledger import Quota

ASYNC = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
GREEDY, VICTIM, THIRD, FOURTH, *HELPERS = TENANTS


def learned(engine: TimedEngine) -> None:
    """The engine has seen what steps take, and both tenants are known."""
    names = [engine.submit(tenant, prompt(3000), 1) for tenant in (GREEDY, VICTIM) * 4]
    steps(engine, lambda: all(name in engine.finished for name in names))


@ASYNC
@pytest.mark.parametrize("blocked", ["ceiling", "grammar"])
@pytest.mark.parametrize("asker", [VICTIM, THIRD], ids=["victim", "newcomer"])
def test_a_line_that_stands_by_while_others_decode_saves_up_no_credit(
    make_engine: MakeEngine, asynchronous: bool, blocked: str, asker: Any
) -> None:
    """Nobody is admitted meanwhile, so that no counter tells how far the others have come."""
    engine = make_engine(asynchronous=asynchronous, running=64)
    names = []
    if blocked == "ceiling":
        engine.scheduler.set_quota(GREEDY, Quota(0, 200))
        names.append(engine.submit(GREEDY, prompt(1600), 1500))
        for _ in range(8):
            engine.step()
    names.append(engine.submit(GREEDY, prompt(2000), 1))
    if blocked == "grammar":
        engine.live[names[-1]].status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    for _ in range(32):
        engine.submit(VICTIM, prompt(100), 6000)
    for _ in range(300):
        engine.step()
    name = engine.submit(asker, prompt(300), 1)
    for _ in range(32):
        engine.submit(GREEDY, prompt(400), 1)
    engine.abort(names)
    assert steps(engine, lambda: name in engine.finished) <= 6


@ASYNC
def test_a_freed_slot_comes_with_tokens(make_engine: MakeEngine, asynchronous: bool) -> None:
    """A prefill in flight takes all of a step: without some of them the slot is freed in vain."""
    engine = make_engine(asynchronous=asynchronous)
    learned(engine)
    for helper in HELPERS[:8]:
        for _ in range(2):
            engine.submit(helper, prompt(20), 20000)
    for _ in range(6):
        engine.step()
    for _ in range(32):
        engine.submit(THIRD, prompt(20), 20000)
    for _ in range(6):
        engine.step()
    engine.submit(FOURTH, prompt(60000), 1)
    for helper in HELPERS[:8]:
        engine.submit(helper, prompt(20), 20000)
    for _ in range(4):
        engine.step()
    name = engine.submit(VICTIM, prompt(100), 1)
    engine.account(VICTIM).tokens += 2000  # as after a prompt that was just served
    before = sum(engine.account(tenant).preemptions_suffered for tenant in TENANTS)
    assert steps(engine, lambda: name in engine.finished) <= 12
    after = sum(engine.account(tenant).preemptions_suffered for tenant in TENANTS)
    assert after - before <= 2


@ASYNC
@pytest.mark.parametrize("token_ms", [0.2, 0.005], ids=["slow", "fast"])
def test_one_long_prompt_does_not_take_whole_steps(
    make_engine: MakeEngine, asynchronous: bool, token_ms: float
) -> None:
    """Nor on an engine whose longest step is far below the bound."""
    engine = make_engine(asynchronous=asynchronous)
    engine.fixed_ms, engine.token_ms = 5.0, token_ms
    learned(engine)
    for _ in range(4):
        engine.submit(GREEDY, prompt(50000), 1)
    for _ in range(4):
        engine.step()
    for _ in range(3):
        name = engine.submit(VICTIM, prompt(300), 2)
        assert steps(engine, lambda name=name: engine.tokens[name] > 0) <= 4
        steps(engine, lambda name=name: name in engine.finished)


@ASYNC
def test_prompts_leave_room_in_a_step_for_what_decodes(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    """Those that were admitted first stand first in vLLM's order."""
    engine = make_engine(asynchronous=asynchronous, running=128)
    engine.fixed_ms, engine.token_ms = 5.0, 0.046
    learned(engine)
    for _ in range(2):
        engine.submit(GREEDY, prompt(60000), 1)
    for _ in range(3):
        engine.step()
    names = [engine.submit(VICTIM, prompt(16), 12) for _ in range(60)]
    missed = 0
    for _ in range(25):
        scheduled = engine.step()
        running = [r.request_id for r in engine.scheduler.running if r.request_id in names]
        decoding = {name for name in running if engine.tokens[name]}
        missed += len(decoding - scheduled.num_scheduled_tokens.keys())
    assert all(name in engine.finished for name in names)
    assert missed <= len(names)  # in async scheduling a request's last token is waited for


@ASYNC
def test_a_tenant_that_aborts_all_it_sends_leaves_one_entry(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    """However often it does so while it stands behind others: the dead would hide the living."""
    engine = make_engine(asynchronous=asynchronous, running=8)
    engine.account(GREEDY).tokens = 100_000.0
    for _ in range(12):
        engine.submit(VICTIM, prompt(20), 7000)
    for _ in range(100):
        engine.abort([engine.submit(GREEDY, prompt(20), 10) or ""])
        engine.step()
    assert len(engine.scheduler.waiting._ready) <= 3


def test_long_cached_prompts_that_wait_are_looked_up_seldom(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant whose turn does not come keeps 64 of them; each look takes as long as the prompt."""
    engine = make_engine()
    learned(engine)
    text = prompt(20000)
    name = engine.submit(GREEDY, text, 1)
    steps(engine, lambda: name in engine.finished)
    for _ in range(8):
        engine.submit(VICTIM, prompt(3000), 1)
    engine.account(GREEDY).tokens += 1e9
    for number in range(64):
        engine.submit(GREEDY, [*text[:-1], number], 1)
    looked_up = count_looks(engine, monkeypatch)
    for _ in range(20):
        while engine.account(VICTIM).waiting < 8:
            engine.submit(VICTIM, prompt(3000), 1)
        looked_up.append(0)
        engine.step()
    assert max(looked_up) <= 100_000
