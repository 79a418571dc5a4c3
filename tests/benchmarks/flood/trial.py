"""One attack on one target: the victim alone, under attack, alone, under attack … and alone."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mean, median
from typing import Any

from flood.attacks import AT_THE_CEILING, flood
from flood.completion import Answer, connect
from flood.targets import POOL_TOKENS, Target, ceiling
from flood.victim import Victim

RAMP_S = 20.0
"""The flood's lead before the victim is measured, unless it has filled the pool once before."""


@dataclass(frozen=True)
class Phase:
    """The victim's answers, and the tokens a second that the engine computed meanwhile."""

    answers: Sequence[Answer]
    seconds: float
    tokens_per_s: float

    @property
    def attackers_tokens_per_s(self) -> float:
        """What was not computed for the victim."""
        own = sum(a.prompt_tokens - a.cached_tokens + a.completion_tokens for a in self.answers)
        return self.tokens_per_s - own / self.seconds

    def ttft_s(self, percent: float = 50) -> float:
        """The victim's time to first token (seconds), by nearest rank."""
        return percentile([answer.ttft_s for answer in self.answers], percent)

    @property
    def hit_rate(self) -> float:
        """How much of the victim's prompts was cached."""
        return mean(answer.hit_rate for answer in self.answers)


@dataclass
class Trial:
    """All phases of one attack on one target; there is one more alone than under attack."""

    target: str
    strategy: str
    alone: list[Phase] = field(default_factory=list)
    attacked: list[Phase] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)
    alarms: Counter[str] = field(default_factory=Counter)

    @property
    def hit_ratio(self) -> float:
        """The victim's hit rate under attack over alone."""
        return pooled(self.attacked).hit_rate / pooled(self.alone).hit_rate

    @property
    def ttft_ratios(self) -> list[float]:
        """Median time to first token over that of the phases alone before and after, by round."""
        around = zip(self.alone[:-1], self.alone[1:], self.attacked, strict=True)
        return [
            attacked.ttft_s() / mean((before.ttft_s(), after.ttft_s()))
            for before, after, attacked in around
        ]

    @property
    def ttft_ratio(self) -> float:
        """The median of the rounds' ratios."""
        return median(self.ttft_ratios)

    @property
    def noise(self) -> list[float]:
        """The same of alone against alone: each phase over the one before."""
        return [b.ttft_s() / a.ttft_s() for a, b in pairwise(self.alone)]


def percentile(values: Sequence[float], percent: float) -> float:
    """The least value that so many per cent do not exceed."""
    return sorted(values)[max(1, math.ceil(len(values) * percent / 100)) - 1]


def pooled(phases: Sequence[Phase]) -> Phase:
    """Several phases as one."""
    seconds = sum(phase.seconds for phase in phases)
    tokens = sum(phase.tokens_per_s * phase.seconds for phase in phases)
    return Phase([a for phase in phases for a in phase.answers], seconds, tokens / seconds)


async def attack(
    target: Target,
    strategy: str,
    *,
    rounds: int,
    questions: int,
    seed: int,
    progress: Callable[[Phase], Any] = lambda phase: None,
) -> Trial:
    """Runs a trial.

    Args:
        questions: the victim's, in each phase.
        seed: of all prompts; another one repeats nothing that is cached.
        progress: called after each phase.

    Raises:
        AssertionError: when everybody has hung up something still runs, or blocks stay pinned.
    """
    trial = Trial(target.name, strategy)
    before = Counter(target.alarms())
    limited = ceiling(target) if strategy in AT_THE_CEILING else nullcontext()
    with limited:
        async with connect(target.base_url, target.victim_key) as client:
            victim = Victim(client, seed)
            for number in range(rounds):
                trial.alone.append(await _alone(target, victim, questions))
                progress(trial.alone[-1])
                under_attack = await _attacked(
                    target, victim, questions, strategy, seed * 100 + number, trial.refusals
                )
                trial.attacked.append(under_attack)
                await asyncio.to_thread(target.settle)
                progress(trial.attacked[-1])
            trial.alone.append(await _alone(target, victim, questions))
            progress(trial.alone[-1])
    trial.alarms = Counter(target.alarms()) - before
    return trial


async def _alone(target: Target, victim: Victim, questions: int) -> Phase:
    await victim.ask()  # whatever the last attack has evicted is cached again
    return await _phase(target, victim, questions)


async def _attacked(
    target: Target,
    victim: Victim,
    questions: int,
    strategy: str,
    seed: int,
    refusals: Counter[str],
) -> Phase:
    async with flood(strategy, target.base_url, target.attacker_keys, seed) as toll:
        began, tokens = time.monotonic(), await asyncio.to_thread(target.tokens)
        while time.monotonic() - began < RAMP_S:
            await asyncio.sleep(0.25)
            if await asyncio.to_thread(target.tokens) - tokens >= POOL_TOKENS:
                break
        phase = await _phase(target, victim, questions)
    refusals.update(toll.refusals)
    return phase


async def _phase(target: Target, victim: Victim, questions: int) -> Phase:
    began, tokens = time.monotonic(), await asyncio.to_thread(target.tokens)
    answers = await victim.ask_several(questions)
    seconds = time.monotonic() - began
    computed = await asyncio.to_thread(target.tokens) - tokens
    return Phase(answers, seconds, computed / seconds)
