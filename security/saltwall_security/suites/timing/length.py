"""How long prompts are: a cached one must be clearly faster, and enough of them must fit."""

from dataclasses import dataclass
from statistics import median

from saltwall_security.prober import Prober, Refused
from saltwall_security.suite import Audit

START_WORDS, LEAST_WORDS = 100, 40
LONG_WORDS, MOST_WORDS = 400, 3_200
"""As many as are wanted, some 1,000 tokens, and as many as are tried if those show nothing."""
ROUNDS = 3
CLEAR = 1.5


@dataclass(frozen=True)
class Length:
    """Prompts of so many words, and what they take.

    Args:
        fresh_s, cached_s: typical times to the first token, of one tenant's own prompts.
        clear: every cached one was faster than every fresh one, by far.
    """

    words: int
    fresh_s: float
    cached_s: float
    clear: bool

    @property
    def sample_s(self) -> float:
        """What a sample of each kind takes where nothing leaks."""
        return 2 * self.fresh_s + self.cached_s


async def choose_length(audit: Audit, probe: Prober, pairs: int, seconds: float) -> Length:
    """The length with which `pairs` samples of each kind fit into the time, if there is one.

    Longer prompts set hit and miss further apart, shorter ones leave time for more of both. What
    is measured here is the warm-up, and no sample.
    """
    length = await _measure(audit, probe, START_WORDS)
    while not length.clear and 2 * length.words <= MOST_WORDS:
        if 2 * length.sample_s * pairs > seconds:
            break
        try:
            length = await _measure(audit, probe, 2 * length.words)
        except Refused:  # longer than the model takes
            break
    return _fit(length, seconds / pairs) if length.clear else length


async def _measure(audit: Audit, probe: Prober, words: int) -> Length:
    victim = audit.client(0)
    fresh, cached = [], []
    for _ in range(1 + ROUNDS):
        prompt = audit.words(words)
        fresh.append((await probe(victim, prompt)).ttft_s)
        cached.append((await probe(victim, prompt)).ttft_s)
    del fresh[0], cached[0]
    clear = max(cached) * CLEAR < min(fresh)
    return Length(words, median(fresh), median(cached), clear)


def _fit(length: Length, sample_s: float) -> Length:
    """As long as fits into a sample's time, but a fresh prompt takes twice as long as a cached."""
    per_word = (length.fresh_s - length.cached_s) / length.words
    fits = (sample_s - 3 * length.cached_s) / (2 * per_word)
    apart = length.cached_s / per_word
    words = round(max(LEAST_WORDS, apart, min(fits, max(length.words, LONG_WORDS))))
    return Length(words, length.cached_s + per_word * words, length.cached_s, clear=True)
