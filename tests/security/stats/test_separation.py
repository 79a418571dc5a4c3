"""One kind of latency below another: the test errs as rarely as it says, and sees what is there."""

import numpy as np
import pytest
from scipy import stats

from saltwall_security.stats import separation as module
from saltwall_security.stats.separation import (
    auc,
    ks_statistic,
    randomisation_test,
    separation,
)
from saltwall_security.stats.sequential import Looks

RUNS = 150


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260101)


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer resamples cost power, not the error rate."""
    monkeypatch.setattr(module, "RESAMPLES", 499)


def busy_machine(rng: np.random.Generator, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of one kind of latency: it drifts, and in each pair one meets another's work."""
    drift = 0.1 + np.abs(np.cumsum(rng.normal(0, 0.02, pairs)))
    both = drift[:, None] * rng.lognormal(0, 0.2, (pairs, 2))
    both[np.arange(pairs), rng.integers(0, 2, pairs)] += 1.0
    return both[:, 0], both[:, 1]


def test_the_statistic_is_that_of_scipy(rng: np.random.Generator) -> None:
    """With and without ties, for samples of unequal size as well."""
    for size in (3, 10, 40):
        first, second = rng.integers(0, 15, size) / 1.0, rng.normal(8, 4, 2 * size).round()
        expected = stats.ks_2samp(first, second, alternative="greater").statistic
        assert ks_statistic(first, second) == pytest.approx(expected)


def test_many_statistics_at_once_are_the_same_as_one_by_one(rng: np.random.Generator) -> None:
    """Along any axis."""
    first, second = rng.normal(size=(2, 5, 20))
    together = ks_statistic(first.T, second.T, axis=0)
    one_by_one = [float(ks_statistic(a, b)) for a, b in zip(first, second, strict=True)]
    assert together == pytest.approx(one_by_one)


@pytest.mark.usefixtures("few_resamples")
def test_false_alarms_are_as_rare_as_stated_on_a_busy_machine(rng: np.random.Generator) -> None:
    """Under drift and load that comes and goes, over all looks at growing samples."""
    alarms = 0
    for _ in range(RUNS):
        first, second = busy_machine(rng, 50)
        looks = Looks((12, 25, 50))
        while (pairs := looks.next) is not None:
            looks.add(randomisation_test(first[:pairs], second[:pairs], rng)[1])
        alarms += looks.p <= 0.1
    assert stats.binomtest(alarms, RUNS, 0.1, "greater").pvalue > 1e-3


def test_tables_for_independent_samples_would_alarm_too_often(rng: np.random.Generator) -> None:
    """Where one of each pair is slow, samples are not independent; so labels are swapped."""
    alarms = 0
    for _ in range(RUNS):
        first, second = busy_machine(rng, 50)
        alarms += stats.ks_2samp(first, second, alternative="greater").pvalue <= 0.1
    assert stats.binomtest(alarms, RUNS, 0.1, "greater").pvalue < 1e-3


@pytest.mark.usefixtures("few_resamples")
def test_a_shift_is_seen_through_drift(rng: np.random.Generator) -> None:
    """Of 50 pairs in which hits take half as long."""
    missed = 0
    for _ in range(30):
        drift = 0.1 + np.abs(np.cumsum(rng.normal(0, 0.01, 50)))
        hit, miss = drift * rng.lognormal(0, 0.2, 50) / 2, drift * rng.lognormal(0, 0.2, 50)
        missed += randomisation_test(hit, miss, rng)[1] > 0.01
    assert missed <= 1


def test_only_the_first_being_smaller_counts(rng: np.random.Generator) -> None:
    """The other way round is a comparison of its own."""
    slow, fast = rng.normal(2, 0.1, 30), rng.normal(1, 0.1, 30)
    assert separation(slow, fast, rng).p > 0.5
    assert separation(fast, slow, rng).p < 0.001


def test_the_area_is_one_for_what_never_overlaps_and_half_for_what_is_the_same() -> None:
    """Ties count half."""
    low, high = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])
    assert auc(low, high) == 1
    assert auc(high, low) == 0
    assert auc(low, low) == 0.5


@pytest.mark.usefixtures("few_resamples")
def test_the_interval_covers_the_true_area(rng: np.random.Generator) -> None:
    """An interval of 95 % does so in at least 90 % of runs, with 40 pairs."""
    true = stats.norm.cdf(1 / np.sqrt(2))
    covered = 0
    for _ in range(50):
        seen = separation(rng.normal(0, 1, 40), rng.normal(1, 1, 40), rng, confidence=0.95)
        covered += seen.low <= true <= seen.high
    assert stats.binomtest(covered, 50, 0.9, "less").pvalue > 1e-3
