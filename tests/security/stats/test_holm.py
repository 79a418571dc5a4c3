"""Holm's correction."""

import pytest

from saltwall_security.stats.holm import holm


def test_a_textbook_example_comes_out_as_in_the_textbook() -> None:
    """R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")."""
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert adjusted == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})


def test_a_single_comparison_is_not_corrected() -> None:
    """There is nothing to correct for."""
    assert holm({"only": 0.02}) == {"only": 0.02}


def test_no_adjusted_value_is_above_one() -> None:
    """They are chances."""
    assert holm({"a": 0.6, "b": 0.9}) == {"a": 1.0, "b": 1.0}
