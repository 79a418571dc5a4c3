"""What the trials showed, as a table for people and a document for programs."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from flood.trial import Phase, Trial, pooled

HEAD = (
    "target",
    "step ms",
    "attack",
    "hit rate alone",
    "attacked",
    "ratio",
    "TTFT alone p50 / p95 / p99, s",
    "attacked, s",
    "p50 ratio",
    "by round",
    "alone / alone",
    "token to token p50, s",
    "p99 later than alone, tokens",
    "computed tok/s",
    "for attackers",
)


def markdown(results: Mapping[tuple[str, str], Sequence[Trial]]) -> str:
    """A row a trial; the key is the target and its step's length."""
    rows = [_row(step, trial) for (_, step), trials in results.items() for trial in trials]
    lines = [HEAD, ["---"] * len(HEAD), *rows]
    notes = [_note(trial) for trials in results.values() for trial in trials]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join([table, *filter(None, notes)])


def document(results: Mapping[tuple[str, str], Sequence[Trial]]) -> list[dict[str, Any]]:
    """Every figure, and every answer of the victim's."""
    return [
        {
            "target": trial.target,
            "step_ms": step,
            "strategy": trial.strategy,
            "hit_ratio": trial.hit_ratio,
            "ttft_ratio": trial.ttft_ratio,
            "ttft_ratios": trial.ttft_ratios,
            "noise": trial.noise,
            "alone": [_phase(phase) for phase in trial.alone],
            "attacked": [_phase(phase) for phase in trial.attacked],
            "refusals": trial.refusals,
            "alarms": trial.alarms,
        }
        for (_, step), trials in results.items()
        for trial in trials
    ]


def _row(step: str, trial: Trial) -> list[str]:
    alone, attacked = pooled(trial.alone), pooled(trial.attacked)
    step_s = median(answer.token_s for answer in attacked.answers)
    return [
        trial.target,
        step,
        trial.strategy,
        f"{alone.hit_rate:.3f}",
        f"{attacked.hit_rate:.3f}",
        f"{trial.hit_ratio:.3f}",
        _ttfts(alone),
        _ttfts(attacked),
        f"**{trial.ttft_ratio:.2f}×**",
        _spread(trial.ttft_ratios),
        _spread(trial.noise),
        f"{step_s:.3f}",
        f"{(attacked.ttft_s(99) - alone.ttft_s(99)) / step_s:.1f}",
        f"{attacked.tokens_per_s:.0f}",
        f"{attacked.attackers_tokens_per_s:.0f}",
    ]


def _ttfts(phase: Phase) -> str:
    figures = " / ".join(f"{phase.ttft_s(percent):.3f}" for percent in (50, 95, 99))
    return f"{figures} (n={len(phase.answers)})"


def _spread(ratios: Sequence[float]) -> str:
    return f"{min(ratios):.2f}…{max(ratios):.2f}"


def _note(trial: Trial) -> str:
    notes = [f"alarm {name}: {count}" for name, count in trial.alarms.items()]
    notes += [f"refused {count} times: {why}" for why, count in trial.refusals.items()]
    return f"{trial.target}, {trial.strategy}: {'; '.join(notes)}" if notes else ""


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        "seconds": phase.seconds,
        "tokens_per_s": phase.tokens_per_s,
        "attackers_tokens_per_s": phase.attackers_tokens_per_s,
        "answers": [vars(answer) for answer in phase.answers],
    }
