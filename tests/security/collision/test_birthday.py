"""The birthday experiment counts right, and tells a whole digest from one with a dead bit."""

from math import comb

import numpy as np
import pytest
from scipy import stats

from saltwall_security.collision.birthday import (
    digests,
    equal_pairs,
    experiment,
    hashes_for_collision,
)

COUNT = 2**17


@pytest.fixture(scope="module")
def made() -> np.ndarray:
    """Digests of as many blocks."""
    return digests(COUNT, bytes(32))


def test_pairs_of_equal_values_are_counted() -> None:
    """Three equal values are three pairs."""
    assert equal_pairs(np.array([5, 1, 5, 2, 5, 2], np.uint64)) == comb(3, 2) + comb(2, 2)
    assert equal_pairs(np.arange(100, dtype=np.uint64)) == 0


def test_sha_256_fits(made: np.ndarray) -> None:
    """At every width that there are enough hashes for."""
    fit = experiment(made)
    assert [width.bits for width in fit.widths] == [16, 20, 24, 28]
    assert fit.p_value > 1e-3


def test_a_dead_bit_is_seen(made: np.ndarray) -> None:
    """One of a width's bits that is always 0 doubles the collisions."""
    assert experiment(made, dead=1).p_value < 1e-6


def test_p_values_of_random_bits_are_uniform() -> None:
    """The test's error rate is what it says."""
    rng = np.random.default_rng(1)
    values = [
        experiment(rng.integers(256, size=(20_000, 32), dtype=np.uint8), (16, 20)).p_value
        for _ in range(200)
    ]
    assert stats.kstest(values, "uniform").pvalue > 1e-3


def test_256_bits_cost_2_to_the_128() -> None:
    """And a third of a bit, on average."""
    assert hashes_for_collision() == pytest.approx(128.33, abs=0.01)
