"""How an attacker tells a right guess from a wrong one."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

from saltwall_security.client import Answer, Client
from saltwall_security.prober import Prober
from saltwall_security.suite import Audit

TEXT_WORDS = (120, 900)
"""Of a text whose prefixes are asked for: some servers cache nothing short."""
CUTS = 8
NEVER = 1e-6
"""The chance that a server counts wrongly."""

REPEATS = 12
LEAST_WORDS, MOST_WORDS = 60, 960
TOO_OFTEN, CLEAR = 0.1, 1.5


@dataclass(frozen=True)
class Oracle:
    """Whether the server had the text after the known part of a prompt in its cache.

    Args:
        sees: what it goes by.
        words: how long the parts of a form must be for it.
        misses: the chance that it overlooks a cached text.
        errs: the chance that it takes a fresh text for a cached one.
        passes: how often it is worth going through the dictionary.
        cached: takes the answer, and how many tokens the known part has.
    """

    sees: str
    words: int
    misses: float
    errs: float
    passes: int
    cached: Callable[[Answer, int], bool]

    @property
    def counts(self) -> bool:
        """Whether it is told, and need not guess."""
        return self.errs <= NEVER


async def by_count(audit: Audit, probe: Prober, attacker: Client) -> Oracle | None:
    """Goes by `cached_tokens`; None where the attacker's own repeats show none.

    Blocks are found as an attacker finds them: of an own text, cut somewhere, whole blocks are
    cached.
    """
    for size in TEXT_WORDS:
        words = audit.words(size).split()
        tokens = (await probe(attacker, " ".join(words))).prompt_tokens
        repeated = (await probe(attacker, " ".join(words))).cached_tokens
        if not tokens or repeated is None:
            return None
        if not repeated:
            continue
        counts = [repeated]
        for _ in range(CUTS):
            cut = audit.rng.randrange(size // 2, size)
            answer = await probe(attacker, " ".join([*words[:cut], audit.words(4)]))
            counts.append(answer.cached_tokens or 0)
        a_block_and_a_half = math.ceil(1.5 * math.gcd(*counts) * size / tokens)
        needed = a_block_and_a_half if size == TEXT_WORDS[0] else size
        return Oracle("cached_tokens", needed, NEVER, NEVER, 1, _counted)
    return None


def _counted(answer: Answer, known_tokens: int) -> bool:
    return (answer.cached_tokens or 0) > known_tokens


async def by_time(audit: Audit, probe: Prober, attacker: Client) -> Oracle | None:
    """Goes by the time to the first token; None where that does not tell own texts apart in time.

    The longer the text after a guess, the further apart hit and miss: it is doubled until none of
    the attacker's own is mistaken.
    """
    words, took_s = LEAST_WORDS, 0.0
    while words <= MOST_WORDS and 2 * took_s < audit.left_s:
        began_s = audit.left_s
        fresh, cached = await _own_times(audit, probe, attacker, words)
        limit = math.sqrt(median(fresh) * median(cached))
        # Jeffreys' estimate: who was never seen to err may err all the same.
        misses = (sum(time > limit for time in cached) + 0.5) / (REPEATS + 1)
        errs = (sum(time <= limit for time in fresh) + 0.5) / (REPEATS + 1)
        if max(misses, errs) < TOO_OFTEN and median(fresh) > CLEAR * median(cached):
            return Oracle(
                "time to first token",
                words,
                misses,
                errs,
                2,
                partial(_sooner, limit),
            )
        words, took_s = 2 * words, began_s - audit.left_s
    return None


def _sooner(limit_s: float, answer: Answer, _: int) -> bool:
    return answer.ttft_s <= limit_s


async def _own_times(
    audit: Audit, probe: Prober, attacker: Client, words: int
) -> tuple[list[float], list[float]]:
    """Seconds for a fresh text after a known opening, and for the same again."""
    opening = audit.words(words)
    await probe(attacker, opening)
    fresh, cached = [], []
    for _ in range(1 + REPEATS):
        prompt = f"{opening} {audit.words(words)}"
        fresh.append((await probe(attacker, prompt)).ttft_s)
        cached.append((await probe(attacker, prompt)).ttft_s)
    return fresh[1:], cached[1:]
