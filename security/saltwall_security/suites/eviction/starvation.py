"""G6: whether attackers hold up the victim's requests."""

from collections.abc import Sequence

from saltwall_security.check import Check, judge
from saltwall_security.suites.eviction.trial import Trial

STARVED_RATIO, STARVED_S = 20.0, 1.0
"""A median time to first token so many times the one alone, and later by so much, is starvation:
far above what shared compute costs, far below what a flood does to stock vLLM (58 times). A busy
machine delays everybody, so the victim must also wait `QUEUED_RATIO` times as long as the attackers
with their long queue, or more; where tenants are served by turns it waits far less."""
QUEUED_RATIO = 0.5
CROWD_RATIO = 20.0
"""So many times a prompt's own tokens computed for others while it waits is starvation: by turns it
is about once, and all that was begun before; first come, first served makes it eight times."""
LOADED_RATIO = 2.0
"""Where neither the attackers' nor the victim's requests take so many times an idle server's, there
is no load."""
FEWEST_WAITS = 3
REFUSED_PART = 0.5
"""A tenant of whose prompts more are refused is turned away, if few of them are alone."""


def starvation_check(trials: Sequence[Trial]) -> Check:
    """G6: the victim's times to first token, under attack over alone."""
    told = [trial for trial in trials if trial.wait_ratio is not None]
    loaded = any(
        max(trial.load_ratio or 0, trial.wait_ratio or 0) >= LOADED_RATIO
        and len(trial.attacked.waits) >= FEWEST_WAITS
        for trial in told
    )
    limited = any(trial.attacked.limited_part > REFUSED_PART for trial in trials)
    starved = [trial for trial in trials if is_starved(trial)]
    worst = max(told, key=lambda trial: trial.wait_ratio or 0.0, default=None)
    return Check(
        "eviction/starvation",
        "G6",
        judge(bool(starved), loaded and not limited),
        "However much others ask for, a tenant's requests are answered: its median time to first"
        f" token stays below {STARVED_RATIO:.0f} times that alone.",
        _slowest(worst, starved)
        + (" A limit on its own requests turned most of them away." if limited else ""),
        worst.figures() if worst else {},
        _loads(trials),
        table=[_row(trial) for trial in trials],
        advice="Share steps and slots by tenant, and bound the length of a step: without that, who"
        " sends most is served most (stock vLLM under the same flood: 58 times)."
        if starved
        else "",
    )


def is_starved(trial: Trial) -> bool:
    """Whether the victim got next to nothing: late, crowded out, or turned away."""
    late = (trial.wait_ratio or 0) > STARVED_RATIO and trial.later_s > STARVED_S
    queued = trial.queue_ratio is None or trial.queue_ratio > QUEUED_RATIO
    crowded_out = (trial.crowd_ratio or 0) > CROWD_RATIO
    turned_away = (
        trial.attacked.sent >= FEWEST_WAITS
        and trial.attacked.turned_away_part > REFUSED_PART
        and trial.before.turned_away_part < REFUSED_PART / 2
    )
    enough = len(trial.attacked.waits) >= FEWEST_WAITS
    return (late and queued and enough) or crowded_out or turned_away


def _slowest(worst: Trial | None, starved: Sequence[Trial]) -> str:
    if worst is None:
        return "No first token of the victim was seen under attack."
    figures = worst.figures()
    noise = figures["ttft_p50_noise_ratio"]
    gone = sum(trial.attacked.unanswered for trial in starved)
    return (
        f"At worst ({worst.strategy.name}) the median went from {figures['ttft_p50_alone_s']:.2f}"
        f" to {figures['ttft_p50_attacked_s']:.2f} s, {worst.wait_ratio:.1f} times; two phases"
        f" alone differ by {'?' if noise is None else f'{noise:.1f}'} times."
        + (f" {gone} requests had no answer when the attack ended." if gone else "")
    )


def _loads(trials: Sequence[Trial]) -> str:
    ratios = [trial.load_ratio for trial in trials if trial.load_ratio is not None]
    if not ratios:
        return "No attacker got a first token."
    return (
        f"The attackers delay themselves: their own median is up to {max(ratios):.1f} times that of"
        " the same request on an idle server."
    )


def _row(trial: Trial) -> dict[str, float | int | str | None]:
    figures = trial.figures()
    names = ("ttft_p50_alone_s", "ttft_p95_alone_s", "ttft_p50_attacked_s", "ttft_p95_attacked_s")
    more = ("ttft_p50_ratio", "ttft_p50_noise_ratio", "ttft_p50_over_attackers", "unanswered")
    return {"attack": trial.strategy.name} | {name: figures[name] for name in names + more}
