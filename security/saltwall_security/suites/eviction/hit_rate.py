"""What the trials say about hit rates: whether a flood takes what a tenant has reserved."""

import math
from collections.abc import Sequence

from saltwall_security.check import Check, Plot, Verdict
from saltwall_security.suites.eviction.cast import Promise
from saltwall_security.suites.eviction.scale import Scale
from saltwall_security.suites.eviction.trial import Trial
from saltwall_security.suites.eviction.victim import Asked

KEPT = 0.99
"""Of the hits that the victim has alone: the guarantee."""
TEETH = 0.9
"""An attack that leaves more than this of an exposed tenant's hits shows nothing."""

_RESERVE = (
    "Give tenants who count on their cache a reserve that covers their prefixes"
    " (`saltwall quota set TENANT --reserve 20%`)."
)
_UNPROVEN = (
    "The auditor does not know whether the victim has a reserve, and without one nothing is"
    f" promised to it. {_RESERVE} With --home or --operator the auditor sets one itself."
)
_IMPOSSIBLE = (
    "The server does not tell its clients apart, so nobody bounds what one of them evicts of"
    " another's cache. Put a platform in front that authenticates tenants and keeps reserves."
)


def hit_rate_check(trial: Trial, promise: Promise, scale: Scale, began_s: float) -> Check:
    """Whether the victim has kept what it had cached.

    A fall is a failure where the victim has a reserve for sure, and where no server of that kind
    could keep one. Elsewhere it is not known that anything was promised, and the check says so.

    Args:
        began_s: when the suite began, on the monotonic clock: plots start there.
    """
    verdict = _verdict(trial, promise)
    return Check(
        f"eviction/{trial.strategy.name}",
        "G4",
        verdict,
        f"A flood evicts nothing that a tenant has cached within its reserve: "
        f"{trial.strategy.title}.",
        _seen(trial, scale),
        {**trial.figures(), "pool_tokens": scale.pool.tokens if scale.pool else None},
        _control(trial, promise),
        [hit_rate_plot(trial, began_s), wait_plot(trial)],
        advice=_advice(verdict, trial, promise),
    )


def _verdict(trial: Trial, promise: Promise) -> Verdict:
    ratio, exposed = trial.hit_ratio, trial.exposed_ratio
    if ratio is None:
        return Verdict.INCONCLUSIVE
    if ratio < KEPT:
        return Verdict.INCONCLUSIVE if promise is Promise.UNKNOWN else Verdict.FAILED
    return Verdict.HELD if exposed is not None and exposed <= TEETH else Verdict.INCONCLUSIVE


def _seen(trial: Trial, scale: Scale) -> str:
    figures, flood = trial.figures(), trial.flood
    if trial.hit_ratio is None:
        return f"No question was answered under attack.{_refused(trial)}"
    pool = f" in a pool of {scale.pool.tokens:,}" if scale.pool else ""
    return (
        f"The victim's hit rate was {figures['hit_rate_alone']:.3f} alone and"
        f" {figures['hit_rate_attacked']:.3f} under attack, where {trial.hit_ratio:.3f} of what it"
        f" finds alone was still there ({len(trial.attacked.questions)} questions). The attackers"
        f" made {flood.requests} requests of {flood.computed:,.0f} tokens{pool}."
        f" {_times(trial)}{_refused(trial)}"
    )


def _times(trial: Trial) -> str:
    figures = trial.figures()
    if trial.wait_ratio is None:
        return "No first token came under attack."
    return (
        f"Its median time to first token went from {figures['ttft_p50_alone_s']:.2f} to"
        f" {figures['ttft_p50_attacked_s']:.2f} s."
    )


def _refused(trial: Trial) -> str:
    refused = trial.flood.refusals
    some = ", ".join(f"{count} x {reason}" for reason, count in refused.most_common(3))
    attackers = f" Attackers were refused: {some}." if refused else ""
    victim = trial.attacked.refused
    return attackers + (f" The victim was, {len(victim)} times: {victim[0]}." if victim else "")


def _control(trial: Trial, promise: Promise) -> str:
    who = (
        "A tenant without a reserve"
        if promise is Promise.GIVEN
        else "The attackers' own old prompt"
    )
    if trial.exposed_ratio is None:
        return f"{who} could not be asked about."
    return f"{who}: {trial.exposed_ratio:.3f} of its hits were left by the same attack."


def _advice(verdict: Verdict, trial: Trial, promise: Promise) -> str:
    if verdict is Verdict.FAILED:
        return _IMPOSSIBLE if promise is Promise.IMPOSSIBLE else _RESERVE
    if verdict is not Verdict.INCONCLUSIVE:
        return ""
    if trial.hit_ratio is not None and trial.hit_ratio < KEPT:
        return _UNPROVEN
    return (
        "The flood did not replace the pool: give it more time (--budget 15m), and tenants whose"
        " limits let it through. With the engine's port or control secret it knows the pool's size."
    )


def hit_rate_plot(trial: Trial, began_s: float) -> Plot:
    """Hit rates over time, before, under and after the attack."""
    phases = {"alone": trial.before, "under attack": trial.attacked, "alone again": trial.after}
    series: dict[str, list[Asked]] = {}
    for name, phase in phases.items():
        series[f"victim, {name}"] = phase.questions
        series[f"without reserve, {name}"] = phase.exposed
    every = [asked for some in series.values() for asked in some]
    return Plot(
        f"Hit rate over time: {trial.strategy.title}",
        "points",
        {name: _among(every, some) for name, some in series.items() if some},
        ("seconds since the suite began", "prompt tokens found cached (part)"),
        [asked.at_s - began_s for asked in every],
    )


def _among(every: Sequence[Asked], some: Sequence[Asked]) -> list[float]:
    mine = set(map(id, some))
    rates = [asked.hit_rate if id(asked) in mine else None for asked in every]
    return [math.nan if rate is None else rate for rate in rates]


def wait_plot(trial: Trial) -> Plot:
    """The victim's times to first token."""
    phases = {"alone": trial.before, "under attack": trial.attacked, "alone again": trial.after}
    return Plot(
        f"The victim's time to first token: {trial.strategy.title}",
        "distribution",
        {name: phase.waits for name, phase in phases.items() if phase.waits},
        ("seconds", "part of the requests"),
        log="x",
    )
