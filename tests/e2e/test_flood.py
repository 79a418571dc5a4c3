"""Attacks on a tenant with a reserve, on the real engine, and the same ones on stock vLLM."""

import asyncio
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from flood.attacks import STRATEGIES
from flood.targets import Target, on_stack
from flood.trial import Trial, attack, pooled
from properties import LONG
from running_stack import Stack

EVICTING = ["prefill", "generations"]
"""The attacks that leave nothing cached on stock vLLM; with SALTWALL_LONG=1 all are made."""


class Outcome(NamedTuple):
    """One attack: on the product, and on vLLM without it."""

    ours: Trial
    stock: Trial


@pytest.fixture(scope="module")
def product(stack: Stack) -> Iterator[Target]:
    """The running stack, with a victim whose reserve is set while it runs."""
    with on_stack(stack, attackers=1) as target:
        yield target


@pytest.fixture(scope="module", params=list(STRATEGIES) if LONG else EVICTING)
def outcome(product: Target, plain: Target, request: pytest.FixtureRequest) -> Outcome:
    """The same attack on both. Stock takes much longer to answer a question, so it gets fewer."""
    rounds = 3 if LONG else 1
    seed = int(time.time())
    ours = attack(product, request.param, rounds=rounds, questions=4 * rounds, seed=seed)
    theirs = attack(plain, request.param, rounds=rounds, questions=2 * rounds, seed=seed)
    return Outcome(asyncio.run(ours), asyncio.run(theirs))


@pytest.mark.timeout(3600 if LONG else 900)
def test_a_flood_takes_nothing_that_the_victim_has_cached(outcome: Outcome) -> None:
    """Its hit rate is what it is alone, while the engine does compute for the attackers."""
    assert outcome.ours.hit_ratio >= 0.99
    assert pooled(outcome.ours.attacked).attackers_tokens_per_s > 1


def test_the_same_flood_leaves_nothing_cached_on_stock_vllm(outcome: Outcome) -> None:
    """The attack is a real one: it is the product that stops it."""
    if outcome.stock.strategy in EVICTING:
        assert outcome.stock.hit_ratio < 0.5


def test_a_flood_delays_the_victim_far_less_than_on_stock_vllm(outcome: Outcome) -> None:
    """Time to first token under attack, over alone: a third of stock's at most."""
    if outcome.stock.strategy in EVICTING:
        assert outcome.ours.ttft_ratio * 3 < outcome.stock.ttft_ratio


def test_nothing_of_a_flood_remains(product: Target, outcome: Outcome) -> None:
    """Once the attackers have hung up no tenant pins a block; the engine has raised no alarm."""
    assert set(product.pinned().values()) == {0}
    assert not outcome.ours.alarms
