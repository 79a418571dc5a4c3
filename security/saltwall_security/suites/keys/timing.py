"""Does the time of a refusal tell how near a key was, or whether its public part exists?"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np
from scipy import stats

from saltwall_security.abandonable import abandonable
from saltwall_security.check import Check, Plot, Verdict, judge
from saltwall_security.raw_http import Wire
from saltwall_security.stats.holm import holm
from saltwall_security.stats.power import pairs_needed, smallest_effect
from saltwall_security.stats.separation import auc
from saltwall_security.suite import Audit
from saltwall_security.suites.keys.key_format import guessed, secret_chars, unknown
from saltwall_security.suites.keys.refusals import TOO_MANY

ALPHA, POWER = 0.001, 0.8
FEWEST, MOST, WARM_UP = 60, 2000, 5
ENOUGH = pairs_needed(0.25, ALPHA / 2, POWER) or MOST
"""Pairs that show a gap of a quarter between distributions; fewer are no pass."""
LONGEST_S = 15.0
"""What so many may take if the suite's time does not last (seconds)."""
CONTROL = "a good key and a bad one"


@dataclass(frozen=True)
class Comparison:
    """Two kinds of keys, measured in pairs of random order (seconds)."""

    name: str
    first: Sequence[float]
    second: Sequence[float]

    @property
    def p(self) -> float:
        """Two-sided two-sample Kolmogorov-Smirnov test."""
        return float(stats.ks_2samp(self.first, self.second).pvalue)

    @property
    def auc(self) -> float:
        """The chance that one of the first kind is faster than one of the second."""
        return float(auc(np.asarray(self.first), np.asarray(self.second)))


async def check_timing(audit: Audit, part: float) -> Check:
    """Sends pairs of keys for this part of the time left, and compares."""
    good, other = (tenant.key or "" for tenant in audit.target.tenants[:2])
    rng, near = audit.rng, secret_chars(good) - 6
    kinds: Mapping[str, tuple[Callable[[], str], Callable[[], str]]] = {
        "a secret that is nearly right and one that is not": (
            lambda: guessed(good, rng, near),
            lambda: guessed(good, rng),
        ),
        "a public part that exists and one that does not": (
            lambda: guessed(other, rng),
            lambda: unknown(other, rng),
        ),
        CONTROL: (lambda: good, lambda: unknown(good, rng)),
    }
    measured = await abandonable(_measure, audit, kinds, audit.left_s * part)
    if measured is None:
        return _untold("the server did not answer, or not so many keys")
    return _judged(measured)


def _measure(
    audit: Audit,
    kinds: Mapping[str, tuple[Callable[[], str], Callable[[], str]]],
    seconds: float,
) -> Sequence[Comparison] | None:
    path = f"{urlsplit(audit.target.url).path.rstrip('/')}/models"
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in kinds}
    dice = random.Random(audit.seed)  # noqa: S311  # an order of measurements, no secret
    began = time.monotonic()
    with Wire(audit.target.url) as wire:

        def took(key: str) -> float | None:
            reply = wire.send("GET", path, [("authorization", f"Bearer {key}")])
            return None if reply.status in (None, TOO_MANY) else reply.took_s

        for _ in range(WARM_UP):
            took(next(iter(kinds.values()))[0]())
        pairs, spent = 0, 0.0
        while pairs < MOST and (
            pairs < FEWEST or spent < (seconds if pairs >= ENOUGH else max(seconds, LONGEST_S))
        ):
            pairs += 1
            for name in dice.sample(list(kinds), len(kinds)):
                for which in dice.sample((0, 1), 2):
                    seconds_taken = took(kinds[name][which]())
                    if seconds_taken is None:
                        return None
                    found[name][which].append(seconds_taken)
            spent = time.monotonic() - began
    return [Comparison(name, *both) for name, both in found.items()]


def _judged(comparisons: Sequence[Comparison]) -> Check:
    by = {each.name: each for each in comparisons}
    control = by.pop(CONTROL)
    adjusted = holm({name: each.p for name, each in by.items()})
    told = [name for name, p in adjusted.items() if p < ALPHA]
    pairs = len(control.first)
    found = smallest_effect(pairs, ALPHA / len(by), POWER)
    least = 1.0 if found is None else round(found, 3)
    figures: dict[str, float | int | str | bool | None] = {
        "pairs": pairs,
        "smallest_gap_seen_with_power_0.8": least,
        "control_auc": round(control.auc, 3),
        "control_p": control.p,
    }
    parts = []
    for number, (name, each) in enumerate(by.items(), 1):
        shift = float(np.median(each.first) - np.median(each.second))
        figures[f"auc_{number}"] = round(each.auc, 3)
        figures[f"p_adjusted_{number}"] = round(adjusted[name], 5)
        figures[f"median_shift_{number}_s"] = round(shift, 7)
        parts.append(
            f"{name}: AUC {each.auc:.3f}, medians {shift * 1e6:+.0f} µs apart, "
            f"p {adjusted[name]:.3g}"
        )
    seen = f"A gap of {least:.2f} between the distributions would have shown."
    if pairs < ENOUGH:
        pair_s = sum(sum(each.first) + sum(each.second) for each in comparisons) / pairs
        seen += f" That is too few: it takes {ENOUGH} pairs, about {ENOUGH * pair_s:.0f} s."
    return Check(
        "keys/timing",
        "G7",
        judge(bool(told), control.p < ALPHA and pairs >= ENOUGH),
        "The time of a refusal tells neither how near a key was nor whether its public part exists",
        f"{pairs} pairs each, of {'; '.join(parts)}. {seen}",
        figures,
        f"{CONTROL[0].upper()}{CONTROL[1:]}: AUC {control.auc:.3f}, p {control.p:.3g}.",
        plots=[
            Plot(
                "Time of refusals",
                "distribution",
                {
                    label: series
                    for each in by.values()
                    for label, series in zip(
                        each.name.split(" and "), (each.first, each.second), strict=False
                    )
                },
                ("time of the answer (s)", "answers"),
            )
        ],
        advice="Look keys up by a public part, and compare a keyed digest in constant time."
        if told
        else "",
    )


def _untold(why: str) -> Check:
    return Check(
        "keys/timing",
        "G7",
        Verdict.INCONCLUSIVE,
        "The time of a refusal tells neither how near a key was nor whether its public part exists",
        f"Not to be told: {why}.",
    )
