"""Looking several times."""

import pytest

from saltwall_security.stats.sequential import Looks


def test_every_look_is_paid_for_whether_or_not_it_is_taken() -> None:
    """Three looks planned: the smallest p-value so far, times three."""
    looks = Looks((10, 20, 40))
    looks.add(0.5)
    assert looks.p == 1
    looks.add(0.01)
    assert looks.p == pytest.approx(0.03)
    looks.add(0.2)
    assert looks.p == pytest.approx(0.03)


def test_no_look_is_taken_that_was_not_planned() -> None:
    """It would raise the error rate."""
    looks = Looks((10,))
    looks.add(0.5)
    assert looks.next is None
    with pytest.raises(ValueError, match="all looks"):
        looks.add(0.001)


def test_a_look_that_reaches_its_level_is_significant_over_all() -> None:
    """Level and overall p-value say the same."""
    looks = Looks((10, 20, 40, 80))
    looks.add(looks.level(0.01))
    assert looks.p == pytest.approx(0.01)
