"""Saltwall's scheduler holds against what stock vLLM's gives in to."""

from typing import Any

import pytest

from saltwall_security.bench.attacks.catalogue import CATALOGUE
from saltwall_security.guarantees import GUARANTEES

MODES = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
NOT_ON_STOCK = {"accounting", "ticket", "generation", "revocation"}
"""What stock vLLM has no notion of, or does as well as anybody."""


@MODES
@pytest.mark.parametrize("name", CATALOGUE)
def test_saltwall_holds(examined: Any, name: str, asynchronous: bool) -> None:
    """And what the attack needs came about, so that it means something."""
    sighting = examined.sightings["saltwall", name, asynchronous]
    assert sighting["applies"]
    assert not sighting["leak"], sighting["seen"]
    assert sighting["control"] is not False, sighting["seen"]
    assert sighting["control"] or name not in NOT_ON_STOCK


@MODES
@pytest.mark.parametrize("name", [name for name in CATALOGUE if name not in NOT_ON_STOCK])
def test_stock_gives_in(examined: Any, name: str, asynchronous: bool) -> None:
    """The control of each attack: it sees what there is to see."""
    assert examined.sightings["stock", name, asynchronous]["leak"]


@pytest.mark.parametrize("name", ["ticket", "generation", "revocation"])
def test_what_a_scheduler_lacks_is_said(examined: Any, name: str) -> None:
    """Stock vLLM has no tickets that could be forged."""
    assert not examined.sightings["stock", name, False]["applies"]


def test_a_scheduler_that_is_not_there_is_named(examined: Any) -> None:
    """The others are examined all the same."""
    assert "saltwall_engine.nowhere" in examined.absent


def test_every_attack_is_about_a_guarantee() -> None:
    """So that a failure has a name that operators know."""
    assert all(entry.guarantee in GUARANTEES for entry in CATALOGUE.values())
