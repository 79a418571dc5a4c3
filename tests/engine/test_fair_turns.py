"""Who is entitled to tokens or a slot is found, whatever else waits, decodes or is in flight.

Each test lets other tenants do what could hide one from the scheduler, or put it behind others that
it should go before, and counts the steps that its small request takes.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from statistics import median
from typing import Any
from uuid import UUID

import pytest
from bare_core import grant
from timed_engine import TENANTS, MakeEngine, TimedEngine, count_looks, prompt, steps
from vllm.sampling_params import StructuredOutputsParams

from saltwall_engine.ledger import Quota

ASYNC = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
GREEDY, VICTIM, THIRD, FOURTH, *HELPERS = TENANTS
CROWD = [UUID(int=1000 + number) for number in range(300)]


class Grammar:
    """One that allows everything."""

    def accept_tokens(self, *_: Any) -> bool:
        """Whether the tokens are of the language."""
        return True

    def is_terminated(self) -> bool:
        """Whether the text is complete."""
        return False


def submit_structured(engine: TimedEngine, tenant: UUID, tokens: int, grammar: Any) -> str:
    """Hands over a request whose grammar is compiled already, failed, or never will be if None.

    vLLM changes its status no sooner than when it tries the request.
    """
    request = engine.core.request(
        prompt(tokens),
        grant(tenant, 1),
        max_tokens=1,
        structured_outputs=StructuredOutputsParams(regex="a*"),
    )
    compiled: Future[Any] = Future()
    if isinstance(grammar, Exception):
        compiled.set_exception(grammar)
    elif grammar is not None:
        compiled.set_result(grammar)
    request.structured_output_request._grammar = compiled
    engine.live[request.request_id], engine.tokens[request.request_id] = request, 0
    engine.scheduler.add_request(request)
    return str(request.request_id)


def keep_waiting(engine: TimedEngine, tenant: UUID, tokens: int, output: int, many: int) -> None:
    """Sends what is missing to so many waiting requests."""
    while engine.account(tenant).waiting < many:
        engine.submit(tenant, prompt(tokens), output)


def learned(engine: TimedEngine) -> None:
    """The engine has seen what steps take, and some tenants are known."""
    for tenant in (GREEDY, VICTIM, THIRD) * 3:
        engine.submit(tenant, prompt(300), 1)
    steps(engine, engine.idle)


@ASYNC
@pytest.mark.parametrize("scarce", ["slots", "tokens"])
def test_a_request_whose_grammar_is_compiled_has_its_turn(
    make_engine: MakeEngine, asynchronous: bool, scarce: str
) -> None:
    """Although vLLM has not noticed, since it tries nobody while slots or tokens are gone."""
    engine = make_engine(asynchronous=asynchronous, running=16)
    engine.fixed_ms, engine.token_ms = 5.0, 0.005
    for tenant in (GREEDY, VICTIM) * 2:
        engine.submit(tenant, prompt(100), 1)
    steps(engine, engine.idle)
    if scarce == "slots":
        keep_waiting(engine, GREEDY, 200, 7000, 20)
    else:
        engine.submit(GREEDY, prompt(60000), 1)
    for _ in range(8):
        engine.step()
    name = submit_structured(engine, VICTIM, 300, Grammar())
    assert steps(engine, lambda: name in engine.finished, 100) <= 4


@ASYNC
def test_no_blocks_are_reclaimed_for_a_grammar_that_failed(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    """Its tenant is below its reserve, and others have borrowed that: it ends with its error."""
    engine = make_engine(asynchronous=asynchronous, blocks=100, running=16, step_tokens=512)
    engine.scheduler.set_quota(VICTIM, Quota(40))
    for _ in range(6):
        engine.submit(GREEDY, prompt(240), 200)
    for _ in range(12):
        engine.step()
    name = submit_structured(engine, VICTIM, 320, ValueError("no such rule"))
    assert steps(engine, lambda: name in engine.finished, 20) < 20
    assert not engine.account(GREEDY).preemptions_suffered


@ASYNC
def test_no_tokens_are_kept_for_a_grammar_that_failed(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    """One a step of a tenant whose turn it always is, as it is never served: others are."""
    engine = make_engine(asynchronous=asynchronous)
    learned(engine)
    for _ in range(3):
        keep_waiting(engine, GREEDY, 2000, 1, 4)
        name = engine.submit(VICTIM, prompt(300), 1)
        for _ in range(8):
            submit_structured(engine, THIRD, 4000, ValueError("no such rule"))
            engine.step()
        assert name in engine.finished
    steps(engine, lambda: not engine.account(THIRD).live, 100)
    assert not engine.account(THIRD).live


@ASYNC
@pytest.mark.parametrize("competes", ["behind a grammar", "in flight"])
def test_who_comes_back_stands_beside_those_that_compete(
    make_engine: MakeEngine, asynchronous: bool, competes: str
) -> None:
    """Also if their first request cannot run, or none waits; not at the counter of who decodes."""
    engine = make_engine(asynchronous=asynchronous, running=64, blocks=30000)
    engine.scheduler.set_quota(THIRD, Quota(weight=0.1))
    learned(engine)
    for _ in range(32):
        engine.submit(THIRD, prompt(20), 60000)
    for _ in range(8):
        engine.step()
    if competes == "in flight":
        engine.submit(GREEDY, prompt(65_000), 1)
    else:
        submit_structured(engine, GREEDY, 100, None)
    for _ in range(60):
        if competes != "in flight":
            keep_waiting(engine, GREEDY, 2000, 1, 16)
        engine.step()
    ahead = engine.account(THIRD).tokens - engine.account(GREEDY).tokens
    assert ahead > 10_000
    name = engine.submit(VICTIM, prompt(300), 1)
    assert steps(engine, lambda: name in engine.finished, 100) <= 6


@ASYNC
@pytest.mark.parametrize("reserve", [0, 2000])
def test_tiny_requests_do_not_take_every_slot_that_another_is_entitled_to(
    make_engine: MakeEngine, asynchronous: bool, reserve: int
) -> None:
    """Each ends in the step in which it is admitted, so that a slot is free in the next one."""
    engine = make_engine(asynchronous=asynchronous)
    engine.scheduler.set_quota(VICTIM, Quota(reserve))
    for tenant in (GREEDY, VICTIM) * 2:
        engine.submit(tenant, prompt(100), 1)
    steps(engine, engine.idle)
    keep_waiting(engine, GREEDY, 20, 20000, 52)
    name = engine.submit(VICTIM, prompt(10_000), 1)
    steps(engine, lambda: name in engine.finished)
    engine.account(THIRD).tokens = engine.account(GREEDY).tokens
    name = engine.submit(VICTIM, prompt(300), 1)
    taken = 0
    while name not in engine.finished and taken < 100:
        keep_waiting(engine, THIRD, 16, 1, 1)
        keep_waiting(engine, GREEDY, 20, 20000, 4)
        engine.step()
        taken += 1
    assert taken <= 6


def shares(
    engine: TimedEngine, kept: Mapping[UUID, tuple[int, int]], count: int
) -> dict[UUID, int]:
    """The tokens that tenants are served in so many steps, but for the first quarter.

    Args:
        kept: the size of each tenant's prompts, and how many of them always wait.
    """
    served = dict.fromkeys(kept, 0)
    for step in range(count):
        for tenant, (size, waiting) in kept.items():
            keep_waiting(engine, tenant, size, 1, waiting)
        owners = {name: request.saltwall_holder.account for name, request in engine.live.items()}
        for name, tokens in engine.step().num_scheduled_tokens.items():
            served[owners[name].tenant] += tokens if step >= count // 4 and name in owners else 0
    return served


@ASYNC
@pytest.mark.parametrize("token_ms", [0.2, 0.005], ids=["slow", "fast"])
def test_tokens_go_by_weight_where_both_always_wait(
    make_engine: MakeEngine, asynchronous: bool, token_ms: float
) -> None:
    """Although a step's tokens go to several requests of the one whose turn it is."""
    engine = make_engine(asynchronous=asynchronous, running=64, step_tokens=512)
    engine.fixed_ms, engine.token_ms = token_ms * 100, token_ms
    engine.scheduler.set_quota(VICTIM, Quota(weight=4.0))
    served = shares(engine, {GREEDY: (132, 20), VICTIM: (132, 20)}, 120)
    assert 3 <= served[VICTIM] / served[GREEDY] <= 5


@ASYNC
@pytest.mark.parametrize("weight", [1.0, 4.0])
def test_tokens_go_by_weight_where_a_tenants_part_is_many_requests(
    make_engine: MakeEngine, asynchronous: bool, weight: float
) -> None:
    """Tiny prompts beside long ones, of which one would take the whole step."""
    engine = make_engine(asynchronous=asynchronous, running=256, step_tokens=8192)
    engine.fixed_ms, engine.token_ms = 10.0, 0.005
    engine.scheduler.set_quota(VICTIM, Quota(weight=weight, store=False))  # nothing is cached
    served = shares(engine, {GREEDY: (4000, 8), VICTIM: (64, 250)}, 90)
    assert 0.75 * weight <= served[VICTIM] / served[GREEDY] <= 1.33 * weight


@ASYNC
def test_a_tenant_whose_requests_are_all_admitted_is_still_owed_its_part(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    """The next ones come before the next step: it has not been away."""
    engine = make_engine(asynchronous=asynchronous, running=64, step_tokens=512)
    engine.scheduler.set_quota(VICTIM, Quota(weight=4.0))
    served = shares(engine, {GREEDY: (100, 40), VICTIM: (100, 3)}, 120)
    assert served[VICTIM] / served[GREEDY] >= 2.5


def test_requests_that_end_in_their_step_do_not_take_all_slots(make_engine: MakeEngine) -> None:
    """Nothing runs when the next step begins, in which they would have them all again."""
    engine = make_engine(running=16)
    engine.fixed_ms, engine.token_ms = 5.0, 0.005
    for tenant in (THIRD, VICTIM):
        engine.submit(tenant, prompt(16), 1)
    steps(engine, engine.idle)
    keep_waiting(engine, THIRD, 16, 1, 50)
    engine.step()
    engine.account(VICTIM).tokens = engine.account(THIRD).tokens + 20_000
    name = engine.submit(VICTIM, prompt(100), 1)
    taken = 0
    while name not in engine.finished and taken < 20:
        keep_waiting(engine, THIRD, 16, 1, 50)
        engine.step()
        taken += 1
    assert taken <= 3


def test_a_parked_line_is_looked_up_seldom_whatever_waits_before_its_head(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight whose grammars are not compiled yet: more of a line are not looked at for its head."""
    engine = make_engine(blocks=3000)
    engine.scheduler.set_quota(GREEDY, Quota(0, 1300))
    text = prompt(16_000)
    engine.submit(GREEDY, text, 1)
    steps(engine, engine.idle)
    engine.submit(GREEDY, prompt(4000), 500)
    engine.submit(VICTIM, prompt(50), 500)
    for _ in range(25):
        engine.step()
    for _ in range(8):
        submit_structured(engine, GREEDY, 16, None)
    engine.submit(GREEDY, [*text, *prompt(3000)], 1)
    looks: list[Any] = []
    predict = engine.scheduler.predict
    monkeypatch.setattr(
        engine.scheduler, "predict", lambda request: looks.append(request) or predict(request)
    )
    for _ in range(40):
        engine.step()
    assert 0 < len(looks) <= 8


@ASYNC
def test_a_crowd_that_has_given_up_hides_nobody(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    """300 tenants sent one request each, and hung up."""
    engine = make_engine(TENANTS + CROWD, asynchronous=asynchronous)
    engine.submit(THIRD, prompt(20), 7000)
    engine.step()
    keep_waiting(engine, GREEDY, 20, 7000, 60)
    for _ in range(5):
        engine.step()
    keep_waiting(engine, THIRD, 20, 7000, 30)
    for _ in range(20):
        engine.step()
    most = max(engine.account(GREEDY).tokens, engine.account(THIRD).tokens)
    for number, tenant in enumerate(CROWD):
        engine.account(tenant).tokens = most + 8000 + number
    engine.abort([engine.submit(tenant, prompt(20), 10) or "" for tenant in CROWD])
    engine.account(VICTIM).tokens = most + 20_000
    name = engine.submit(VICTIM, prompt(100), 1)
    assert steps(engine, lambda: name in engine.finished, 100) <= 4


@ASYNC
def test_tenants_that_have_their_slots_hide_nobody_who_has_none(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    """100 of them, each with one that runs and two that wait, at lower counters."""
    engine = make_engine(TENANTS + CROWD, asynchronous=asynchronous, running=128)
    learned(engine)
    for tenant in CROWD[:100]:
        engine.submit(tenant, prompt(20), 20000)
    for _ in range(3):
        engine.step()
    keep_waiting(engine, GREEDY, 20, 20000, 128)
    for _ in range(3):
        engine.step()
    for tenant in CROWD[:100] * 2:
        engine.submit(tenant, prompt(20), 20000)
    for _ in range(5):
        engine.step()
    engine.account(VICTIM).tokens += 20_000
    name = engine.submit(VICTIM, prompt(300), 1)
    assert steps(engine, lambda: name in engine.finished, 100) <= 4


@ASYNC
def test_a_parked_request_does_not_hide_the_one_before_it(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    """Its grammar is compiled by now, and its blocks are there."""
    engine = make_engine(asynchronous=asynchronous, blocks=1000)
    learned(engine)
    engine.submit(GREEDY, prompt(13000), 2000)
    for _ in range(60):
        engine.step()
    name = submit_structured(engine, VICTIM, 100, None)
    request = engine.live[name]
    engine.submit(VICTIM, prompt(12000), 1)
    for _ in range(5):
        engine.step()
    request.structured_output_request._grammar.set_result(Grammar())
    assert steps(engine, lambda: name in engine.finished, 100) <= 4


@ASYNC
def test_a_slot_given_out_of_turn_lifts_nobody_else(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    """A tenant that is far ahead, and entitled to a slot, does not take the others along."""
    engine = make_engine(asynchronous=asynchronous)
    for tenant in (GREEDY, VICTIM, FOURTH):
        engine.submit(tenant, prompt(300), 1)
    steps(engine, engine.idle)
    for _ in range(6):
        for tenant in HELPERS[:8]:
            engine.submit(tenant, prompt(20), 20000)
    for _ in range(30):
        engine.step()
    engine.submit(GREEDY, prompt(60000), 1)
    for _ in range(8):
        engine.step()
    engine.account(FOURTH).tokens = engine.account(GREEDY).tokens + 20_000  # as after decodes
    ahead = engine.submit(FOURTH, prompt(16), 1)
    assert steps(engine, lambda: ahead in engine.finished, 100) <= 8
    name = engine.submit(VICTIM, prompt(300), 1)
    assert steps(engine, lambda: name in engine.finished, 100) <= 8


def test_parked_heads_with_long_cached_prompts_are_looked_up_seldom(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block that their tenants fill might be one of theirs; a look takes a prompt's length."""
    engine = make_engine(running=128)
    tokens, tenants = 20_000, HELPERS[:4]
    texts = [prompt(tokens) for _ in tenants]
    for tenant, text in zip(tenants, texts, strict=True):
        engine.scheduler.set_quota(tenant, Quota(0, tokens // 16 + 100))
        engine.submit(tenant, text, 1)
    steps(engine, engine.idle)
    for tenant, text in zip(tenants, texts, strict=True):
        for number in range(12):
            engine.submit(tenant, prompt(100 + number), 900)
        engine.submit(tenant, [*text[:-300], *prompt(900)], 1)
    looked_up = count_looks(engine, monkeypatch)
    for _ in range(64):
        keep_waiting(engine, VICTIM, 1000, 1, 2)
        looked_up.append(0)
        engine.step()
    assert all(engine.account(tenant).waiting for tenant in tenants)
    assert median(looked_up) < tokens
    assert max(looked_up[8:]) <= 4 * tokens
