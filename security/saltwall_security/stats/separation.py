"""How far one kind of latency lies below another, from pairs measured side by side."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

RESAMPLES = 9_999
BATCH = 1_000


@dataclass(frozen=True)
class Separation:
    """Whether the first of each pair tends to be the smaller one.

    Args:
        pairs: how many there were.
        ks: the one-sided two-sample Kolmogorov-Smirnov statistic, sup(F_first - F_second), 0 to 1.
        p: of `ks`, if it had been a toss which of a pair was called the first.
        auc: the chance that some first one is below some second one; 0.5 tells nothing.
        low, high: the confidence interval of `auc`, by the bootstrap over pairs.
    """

    pairs: int
    ks: float
    p: float
    auc: float
    low: float
    high: float


def separation(
    first: ArrayLike, second: ArrayLike, rng: np.random.Generator, confidence: float = 0.99
) -> Separation:
    """Compares two kinds of latency, measured in pairs of random order.

    The statistic is that of "Auditing Prompt Caching in Language Model APIs" (ICML 2025).

    Args:
        first, second: seconds, or any other unit; those with the same index are a pair.
        confidence: of the interval around the AUC.
    """
    pair = (np.asarray(first, dtype=float), np.asarray(second, dtype=float))
    ks, p = randomisation_test(*pair, rng)
    low, high = stats.bootstrap(
        pair,
        auc,
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=BATCH,
        confidence_level=confidence,
        method="percentile",  # the others are not defined where nothing overlaps
        axis=-1,
        rng=rng,
    ).confidence_interval
    return Separation(len(pair[0]), ks, p, float(auc(*pair)), float(low), float(high))


def randomisation_test(
    first: NDArray[Any], second: NDArray[Any], rng: np.random.Generator
) -> tuple[float, float]:
    """The Kolmogorov-Smirnov statistic, and the part of all swaps within pairs that reach it.

    A toss decided which of a pair was measured first, so where the kinds do not differ a swap
    changes nothing. That holds whatever drift, load or correlation there is between pairs and
    within them, where tables for independent samples do not (Ernst, "Permutation Methods: A Basis
    for Exact Inference", Statistical Science 2004).
    """
    test = stats.permutation_test(
        (first, second),
        ks_statistic,
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=BATCH,
        alternative="greater",
        axis=-1,
        rng=rng,
    )
    return abs(float(test.statistic)), float(test.pvalue)  # never -0.0


def ks_statistic(first: NDArray[Any], second: NDArray[Any], axis: int = -1) -> NDArray[Any]:
    """`scipy.stats.ks_2samp(first, second, alternative="greater").statistic`, for many at once."""
    both = np.moveaxis(np.concatenate([first, second], axis), axis, -1)
    size = first.shape[axis]
    order = both.argsort(-1)
    heights = np.where(order < size, 1 / size, -1 / (both.shape[-1] - size)).cumsum(-1)
    ranked = np.take_along_axis(both, order, -1)
    last_of_its_value = np.ones(ranked.shape, dtype=bool)
    last_of_its_value[..., :-1] = ranked[..., :-1] != ranked[..., 1:]
    highest: NDArray[Any] = np.where(last_of_its_value, heights, 0).max(-1)
    return highest


def auc(first: NDArray[Any], second: NDArray[Any], axis: int = -1) -> NDArray[Any]:
    """The area under the ROC curve of telling them apart by a threshold (Mann-Whitney's U)."""
    above = stats.mannwhitneyu(first, second, axis=axis, method="asymptotic").statistic
    area: NDArray[Any] = 1 - above / (first.shape[axis] * second.shape[axis])
    return area
