"""How many pairs show an effect, and how small an effect so many pairs show."""

from typing import Final

import numpy as np
from scipy import optimize, stats

MOST_PAIRS: Final = 2_000
ANYWHERE: Final = 4
"""A gap somewhere is at most about so much likelier than one at a given point, where nothing
differs (simulated, with and without overlap and drift)."""


def power(effect: float, pairs: int, alpha: float) -> float:
    """The chance that the randomisation test of Kolmogorov and Smirnov's statistic sees an effect.

    At the point where the distributions are furthest apart, a pair speaks for the effect if its
    first is below and its second above; the test sees it where a sign test of such pairs would
    (Dixon and Mood, "The Statistical Sign Test", JASA 1946), `ANYWHERE` allowed for. A lower bound:
    the gap is taken to lie where it is hardest to see, in the middle.

    Args:
        effect: the gap sup(F_first - F_second), 0 to 1.
        alpha: the test's error rate.
    """
    above, below = (1 + effect) / 2, (1 - effect) / 2
    speaks = above**2 + below**2
    speaking = np.arange(pairs + 1)
    for_it = stats.binom.isf(alpha / ANYWHERE, speaking, 0.5) + 1
    seen = stats.binom.sf(for_it - 1, speaking, above**2 / speaks)
    return float(np.dot(stats.binom.pmf(speaking, pairs, speaks), seen))


def pairs_needed(effect: float, alpha: float, wanted: float) -> int | None:
    """The fewest pairs with which `power` is as wanted; None if it takes more than `MOST_PAIRS`."""
    if power(effect, MOST_PAIRS, alpha) < wanted:
        return None
    few, enough = 1, MOST_PAIRS
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if power(effect, middle, alpha) >= wanted else (middle, enough)
    return enough


def smallest_effect(pairs: int, alpha: float, wanted: float) -> float | None:
    """The smallest effect of which `power` is as wanted; None if not even 1 is."""
    if power(1.0, pairs, alpha) < wanted:
        return None
    return float(optimize.brentq(lambda effect: power(effect, pairs, alpha) - wanted, 0.0, 1.0))
