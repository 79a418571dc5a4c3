"""How many pairs it takes."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from saltwall_security.stats import separation as module
from saltwall_security.stats.power import pairs_needed, power, smallest_effect
from saltwall_security.stats.separation import randomisation_test

ALPHA, WANTED, RUNS = 0.01, 0.9, 80
Pairs = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


def half_of_the_probes_hit(rng: np.random.Generator, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Hits and misses do not overlap; the gap is 0.5."""
    hits = np.where(rng.random(pairs) < 0.5, 0.1, 1.0) * rng.lognormal(0, 0.1, pairs)
    return hits, rng.lognormal(0, 0.1, pairs)


def nearly_all_hit_in_drift(rng: np.random.Generator, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """The gap is 0.9 but for what drift blurs."""
    drift = np.exp(np.cumsum(rng.normal(0, 0.02, pairs)))
    hits = np.where(rng.random(pairs) < 0.9, 0.1, 1.0) * rng.lognormal(0, 0.1, pairs)
    return drift * hits, drift * rng.lognormal(0, 0.1, pairs)


def a_shift_in_noise(rng: np.random.Generator, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal with a gap of 0.5."""
    shift = 2 * stats.norm.ppf(0.75)
    return rng.normal(0, 1, pairs), rng.normal(shift, 1, pairs)


@pytest.mark.parametrize(
    ("pairs_of", "effect"),
    [(half_of_the_probes_hit, 0.5), (nearly_all_hit_in_drift, 0.9), (a_shift_in_noise, 0.5)],
)
def test_so_many_pairs_show_the_effect_as_often_as_stated(
    pairs_of: Pairs, effect: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least: it is a lower bound."""
    monkeypatch.setattr(module, "RESAMPLES", 999)
    rng = np.random.default_rng(7)
    pairs = pairs_needed(effect, ALPHA, WANTED)
    assert pairs is not None
    seen = sum(randomisation_test(*pairs_of(rng, pairs), rng)[1] <= ALPHA for _ in range(RUNS))
    assert stats.binomtest(seen, RUNS, WANTED, "less").pvalue > 1e-3


def test_a_smaller_effect_takes_more_pairs() -> None:
    """About four times as many for half of it, and no number will do for none."""
    quarter, half = pairs_needed(0.25, ALPHA, WANTED), pairs_needed(0.5, ALPHA, WANTED)
    assert quarter is not None
    assert half is not None
    assert 3 < quarter / half < 6
    assert pairs_needed(0.0, ALPHA, WANTED) is None


def test_the_smallest_effect_has_the_power_that_was_wanted() -> None:
    """Exactly."""
    effect = smallest_effect(60, ALPHA, WANTED)
    assert effect is not None
    assert power(effect, 60, ALPHA) == pytest.approx(WANTED)


def test_too_few_pairs_show_nothing_for_certain() -> None:
    """Not even two kinds that never overlap."""
    assert smallest_effect(5, ALPHA, WANTED) is None
