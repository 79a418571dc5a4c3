"""Whether hits come sooner than misses, or later: with few samples where that is plain."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saltwall_security.stats.power import pairs_needed, power, smallest_effect
from saltwall_security.stats.separation import (
    Separation,
    ks_statistic,
    randomisation_test,
    separation,
)
from saltwall_security.stats.sequential import LOOKS, Looks
from saltwall_security.suites.timing.samples import Sampler, Samples

ALPHA = 0.01
"""The chance that a run sees anything at all where there is nothing."""
COMPARISONS = 4
"""First tokens, sooner and later, and the two channels of load: they share the error rate."""
POWER, PART = 0.95, 0.5
"""A leak in this part of the probes must be seen with this chance."""
FEWEST, FEW = 6, 25
"""Pairs, below which nothing can be said, and below which the control's size is a guess."""

EXACT_S = 1e-4

LEVEL = Looks().level(ALPHA / COMPARISONS)
PAIRS = pairs_needed(PART, LEVEL, POWER) or LOOKS[-1]
"""How many it takes where no cached prompt takes as long as a fresh one."""


@dataclass(frozen=True)
class Comparison:
    """What the samples say.

    Args:
        attack, control: None where there were too few samples.
        sooner_p, later_p: that what another has sent comes sooner than what is fresh, or later.
        control_p: that what a tenant itself has sent comes sooner. All are over all looks.
    """

    attack: Separation | None
    control: Separation | None
    sooner_p: float
    later_p: float
    control_p: float

    @property
    def control_seen(self) -> bool:
        """Whether the test detects a tenant's own cached prompts."""
        return self.control_p <= ALPHA

    @property
    def needed(self) -> int | None:
        """Pairs that show a leak in a `PART` of the probes, of the control's size; None if no
        number within reason does."""
        return pairs_needed(PART * self.control.ks, LEVEL, POWER) if self.control else PAIRS

    @property
    def strong(self) -> bool:
        """Whether there were as many."""
        return self.control is not None and _shows(self.control.ks, self.control.pairs)

    @property
    def visible_effect(self) -> float | None:
        """The smallest gap between distributions that would have been seen; None if unknown."""
        return smallest_effect(self.control.pairs, LEVEL, POWER) if self.control else None

    @property
    def visible_part(self) -> float | None:
        """The smallest part of probes, a leak in which would have been seen; None if unknown."""
        visible = self.visible_effect
        if self.control is None or not self.control.ks or visible is None:
            return None
        return min(1.0, visible / self.control.ks)


def visible_shift(fresh: Sequence[float], effect: float) -> float:
    """The least gain (s) of every cached prompt that would part the distributions by `effect`."""
    times = np.array(fresh)
    few, enough = 0.0, float(np.ptp(times)) + EXACT_S
    while enough - few > EXACT_S:
        middle = (few + enough) / 2
        parted = float(ks_statistic(times - middle, times)) >= effect
        few, enough = (few, middle) if parted else (middle, enough)
    return enough


async def compare(sampler: Sampler, left_s: float, rng: np.random.Generator) -> Comparison:
    """Takes samples until a leak is plain, or would be if there were one, or time is up.

    Args:
        left_s: seconds of the suite's time that must be left.
    """
    sooner, later, controls = Looks(), Looks(), Looks()
    attack = control = None
    while sooner.next is not None:
        in_time = await sampler.fill(sooner.next, left_s, _enough)
        samples = sampler.samples
        if len(samples) < FEWEST:
            break
        attack = separation(samples.others, samples.fresh, rng, 1 - ALPHA)
        control = separation(samples.own, samples.fresh, rng, 1 - ALPHA)
        sooner.add(attack.p)
        later.add(randomisation_test(np.array(samples.fresh), np.array(samples.others), rng)[1])
        controls.add(control.p)
        leak = min(sooner.p, later.p) * COMPARISONS <= ALPHA
        if leak or not in_time or _enough(samples):
            break
    return Comparison(attack, control, sooner.p, later.p, controls.p)


def _enough(samples: Samples) -> bool:
    """Whether a leak would have been seen; only the control is looked at, which costs no error."""
    if len(samples) < FEW:
        return False
    effect = float(ks_statistic(np.array(samples.own), np.array(samples.fresh)))
    return _shows(effect, len(samples))


def _shows(effect: float, pairs: int) -> bool:
    return power(PART * effect, pairs, LEVEL) >= POWER
