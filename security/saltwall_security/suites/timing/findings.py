"""What was measured, as checks."""

import math
from collections.abc import Sequence
from statistics import median

from saltwall_security.check import Check, Plot, Verdict, judge
from saltwall_security.stats.separation import Separation
from saltwall_security.stats.sequential import LOOKS
from saltwall_security.suites.timing.comparison import (
    ALPHA,
    COMPARISONS,
    PART,
    POWER,
    Comparison,
    visible_shift,
)
from saltwall_security.suites.timing.load import PART_OF_TIME, Channel
from saltwall_security.suites.timing.samples import Sampler

CLAIM = "A first token comes neither sooner nor later where another tenant has just sent the prompt"
ADVICE = (
    "Make a secret of each tenant's own part of the hash of every cached block (a cache salt that "
    "the tenant does not choose), or turn prefix caching off."
)


def first_token_check(
    sampler: Sampler, result: Comparison, p: float, words: int, suite_s: float
) -> Check:
    """The verdict on the cache's timing channel.

    Args:
        p: of the attack, sooner or later, adjusted for all comparisons of the run.
        words: the length of the prompts.
        suite_s: the time that the suite was given.
    """
    samples = sampler.samples
    leak = p <= ALPHA
    verdict = judge(leak, result.control_seen and result.strong)
    figures: dict[str, float | int | str | bool | None] = {
        "samples_of_each_kind": len(samples),
        "dropped_blocks": sampler.dropped,
        "prompt_words": words,
        "sample_s": sampler.sample_s,
        "error_rate": ALPHA,
        "p_adjusted": p,
        "sooner_p": result.sooner_p,
        "later_p": result.later_p,
        "control_p": result.control_p,
        "samples_needed": result.needed,
        "smallest_visible_part": result.visible_part,
        "smallest_visible_shift_s": _shift(sampler, result),
        **_figures("attack", result.attack, samples.others, samples.fresh),
        **_figures("control", result.control, samples.own, samples.fresh),
    }
    return Check(
        "timing/first-token",
        "G2",
        verdict,
        CLAIM,
        _seen(sampler, result, p, suite_s),
        figures,
        control=_control(sampler, result),
        plots=[_plot(sampler)] if len(samples) else [],
        advice=ADVICE if leak else "",
    )


def channel_check(
    name: str, claim: str, channel: Channel, seen: Separation | None, p: float, why: str
) -> Check:
    """What is seen of a channel that no guarantee closes.

    Args:
        p: adjusted for all comparisons of the run.
        why: what kept it from being measured, if it was not.
    """
    if seen is None:
        return Check(f"timing/{name}", None, Verdict.INCONCLUSIVE, claim, why)
    shows = p <= ALPHA
    few = "" if 0.5**seen.pairs * COMPARISONS <= ALPHA else ", too few to see it"
    said = (
        f"{'It shows' if shows else 'It was not seen'} in {seen.pairs} pairs{few}: "
        f"{_times(channel.cached, channel.fresh, 'beside a cached prompt', 'beside a fresh one')}, "
        f"{_area(seen)}, p {_p(p)}."
    )
    if shows:
        said += " Load is visible wherever tenants share compute; no guarantee says otherwise."
    return Check(
        f"timing/{name}",
        None,
        Verdict.FAILED if shows else Verdict.INCONCLUSIVE,
        claim,
        said,
        {"p_adjusted": p, **_figures("channel", seen, channel.cached, channel.fresh)},
    )


def _seen(sampler: Sampler, result: Comparison, p: float, suite_s: float) -> str:
    samples, attack = sampler.samples, result.attack
    if attack is None:
        return (
            f"Only {len(samples)} samples of each kind fitted into the time, at "
            f"{sampler.sample_s:.2g} s for one of each: {_more(sampler, result, suite_s)}"
        )
    said = (
        f"{attack.pairs} samples of each kind: "
        f"{_times(samples.others, samples.fresh, 'for what the other tenant had sent', 'fresh')}, "
        f"{_area(attack)}, p {_p(p)}."
    )
    if p <= ALPHA:
        return said
    if not result.control_seen:
        return (
            f"{said} That tells nothing: even a tenant's own cached prompts were not seen to be "
            "faster. Either nothing is cached, or the noise is too great for so few samples; "
            f"{_more(sampler, result, suite_s)}"
        )
    if not result.strong:
        return f"{said} That is too few to tell: {_more(sampler, result, suite_s)}"
    return (
        f"{said} A leak in {result.visible_part:.0%} of the probes would have been seen with a "
        f"chance of {POWER:.0%}, or one that gains {1000 * (_shift(sampler, result) or 0):.1f} ms "
        "in each of them; what is less or rarer would not."
    )


def _shift(sampler: Sampler, result: Comparison) -> float | None:
    """The smallest gain that would have been seen in every probe (s)."""
    effect, fresh = result.visible_effect, sampler.samples.fresh
    return None if effect is None else visible_shift(fresh, effect)


def _more(sampler: Sampler, result: Comparison, suite_s: float) -> str:
    """How many samples it would take, and how much time."""
    if result.needed is None or result.needed > LOOKS[-1]:
        return f"by what the control shows, more than the {LOOKS[-1]} that are taken at most."
    needed_s = result.needed * sampler.sample_s
    enough_s = max(1.1 * suite_s, needed_s / (1 - PART_OF_TIME))
    return (
        f"a leak in {PART:.0%} of the probes takes {result.needed} samples of each kind, about "
        f"{needed_s:.0f} s of sampling; this suite had {suite_s:.0f} s "
        f"(`--suite timing --budget {math.ceil(enough_s)}s` is enough)."
    )


def _control(sampler: Sampler, result: Comparison) -> str | None:
    samples, control = sampler.samples, result.control
    if control is None:
        return None
    return (
        "Each tenant's own cached prompts against its own fresh ones: "
        f"{_times(samples.own, samples.fresh, 'cached', 'fresh')}, {_area(control)}, "
        f"p {_p(result.control_p)}"
    )


def _figures(
    name: str, seen: Separation | None, first: Sequence[float], second: Sequence[float]
) -> dict[str, float | int | str | bool | None]:
    if seen is None:
        return {}
    return {
        f"{name}_hit_p50_s": median(first),
        f"{name}_miss_p50_s": median(second),
        f"{name}_ks": seen.ks,
        f"{name}_auc": seen.auc,
        f"{name}_auc_low": seen.low,
        f"{name}_auc_high": seen.high,
    }


def _plot(sampler: Sampler) -> Plot:
    samples = sampler.samples
    return Plot(
        "Time to first token, by what was sent",
        "distribution",
        {
            "just sent by the other tenant": samples.others,
            "fresh": samples.fresh,
            "control: just sent by itself": samples.own,
        },
        ("time to first token (s)", "samples"),
    )


def _times(first: Sequence[float], second: Sequence[float], one: str, other: str) -> str:
    return f"median {1000 * median(first):.0f} ms {one}, {1000 * median(second):.0f} ms {other}"


def _area(seen: Separation) -> str:
    return f"AUC {seen.auc:.2f} ({1 - ALPHA:.0%} interval {seen.low:.2f} to {seen.high:.2f})"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.2g}"
