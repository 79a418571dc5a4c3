"""The sequence that a strict tenant replays."""

import random

import pytest

from saltwall_security.suites.eviction.replay import PROMPTS, order


@pytest.mark.parametrize("seed", range(20))
def test_a_sequence_has_something_to_lose(seed: int) -> None:
    """Its second half begins with what was used last, and comes back to more of the first."""
    found = order(12, random.Random(seed))
    assert len(found) == 12
    assert set(found) <= set(range(PROMPTS))
    assert found[6] == found[5]
    assert set(found[6:]) <= set(found[:6])
