"""A step is as long as the operator says, and its tokens go to who was served least."""

import pytest

from saltwall_engine.ledger import Account
from saltwall_engine.step_budget import Shares, StepBudget


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def learn(budget: StepBudget, clock: Clock, base_ms: float, token_ms: float) -> None:
    """Lets a budget see steps of a machine that takes so long for a step and for a token."""
    for i in range(120):
        tokens = budget.tokens() if i % 3 else 0
        began = clock.now
        clock.now += (base_ms + tokens * token_ms) / 1000
        budget.observe(began, tokens)


@pytest.mark.parametrize("token_ms", [0.05, 0.5, 2.0])
def test_steps_come_to_take_the_target(token_ms: float) -> None:
    """Whatever a token costs, the tokens given come to fill the target and no more."""
    clock = Clock()
    budget = StepBudget(100.0, least=16, most=8192, clock=clock)
    learn(budget, clock, 10.0, token_ms)
    took = 10.0 + max(budget.tokens() for _ in range(4)) * token_ms
    assert 70 <= took <= 115


def test_a_phase_of_decodes_wears_nothing_away() -> None:
    """After 500 steps without prefill, the next prompt is computed as fast as before."""
    clock = Clock()
    budget = StepBudget(100.0, least=16, most=8192, clock=clock)
    learn(budget, clock, 20.0, 0.05)
    before = max(budget.tokens() for _ in range(4))
    for _ in range(500):
        clock.now += 0.02
        budget.observe(clock.now - 0.02, 0)
    assert max(budget.tokens() for _ in range(4)) > 0.8 * before


def test_a_fixed_time_above_the_target_does_not_stop_prefill() -> None:
    """Where decodes alone fill the target, half as much time still goes to prompts."""
    clock = Clock()
    budget = StepBudget(100.0, least=16, most=8192, clock=clock)
    learn(budget, clock, 120.0, 0.5)
    assert 60 <= max(budget.tokens() for _ in range(4)) <= 200


@pytest.mark.parametrize("base_ms", [80.0, 100.0, 150.0])
def test_the_budget_finds_out_of_its_least_without_a_step_of_decodes(base_ms: float) -> None:
    """Steps of one size tell nothing of what a token costs: some are larger, to learn it."""
    clock = Clock()
    budget = StepBudget(100.0, least=16, most=8192, clock=clock)
    for _ in range(400):
        tokens, began = budget.tokens(), clock.now
        clock.now += (base_ms + tokens * 0.2) / 1000
        budget.observe(began, tokens)
    ideal = max(100.0 - base_ms, min(base_ms, 100.0) / 2) / 0.2
    assert 0.8 * ideal <= max(budget.tokens() for _ in range(4)) <= 1.2 * ideal


def test_a_step_always_computes_something() -> None:
    """On a machine too slow for the target, prompts still advance by the least that is sensible."""
    clock = Clock()
    budget = StepBudget(10.0, least=16, most=8192, clock=clock)
    learn(budget, clock, 50.0, 20.0)
    assert max(budget.tokens() for _ in range(4)) <= 32


def test_zero_is_no_bound() -> None:
    """An operator who asks for no bound gets vLLM's own budget."""
    budget = StepBudget(0.0, least=16, most=2048)
    assert budget.tokens() == 2048


def test_one_odd_step_changes_little() -> None:
    """A step held up by something else does not shrink the next ones to nothing."""
    clock = Clock()
    budget = StepBudget(100.0, least=16, most=8192, clock=clock)
    learn(budget, clock, 10.0, 0.5)
    before = max(budget.tokens() for _ in range(4))
    clock.now += 60
    budget.observe(clock.now - 60, before)
    assert max(budget.tokens() for _ in range(4)) > before / 2


def test_who_was_served_least_takes_first() -> None:
    """The tenant with the lowest counter gets all that it can use, the others what is left."""
    heavy, light = Account("heavy"), Account("light")
    heavy.tokens, light.tokens = 1000.0, 10.0
    shares = Shares(100, {heavy: 5000, light: 30})
    assert (shares.of(light), shares.of(heavy)) == (30, 70)


def test_among_equals_the_one_with_nothing_running_goes_first() -> None:
    """A tenant lifted to the least active counter does not stand behind the one that has it."""
    busy, back = Account("busy"), Account("back")
    busy.live = 8
    shares = Shares(100, {busy: 5000, back: 30})
    assert shares.of(back) == 30


def test_what_is_spare_goes_to_whoever_comes() -> None:
    """Tokens that nobody was known to need serve a tenant that was not foreseen, once."""
    known, late = Account("known"), Account("late")
    shares = Shares(100, {known: 40})
    assert shares.of(late) == 60
    shares.spend(late, 60)
    assert (shares.of(late), shares.of(known), shares.exhausted) == (0, 40, False)
    shares.spend(known, 40)
    assert shares.exhausted
