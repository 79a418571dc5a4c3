"""How long prompts have to be, and how many, for the pool and the model at hand."""

import math
from dataclasses import dataclass, replace

from saltwall_security.prober import Prober, Refused
from saltwall_security.suite import Audit
from saltwall_security.suites.eviction.pool import Pool, find_pool

SAMPLE_WORDS = 64
USUAL_BLOCK, USUAL_PREFIX, USUAL_PROMPT = 32, 1024, 1280
"""Tokens, where the pool's size is unknown."""
SHORTEST, LONGEST_PROMPT = 192, 3072
IN_FLIGHT = (8, 64)
"""The fewest and the most requests that attackers keep in flight."""
REPLAY_BLOCKS, STRICT_BLOCKS = 5, 16
"""Of one replayed prompt, and the strict tenant's ceiling: some prompts fit, and not all."""


@dataclass(frozen=True)
class Scale:
    """All sizes of the experiment.

    Args:
        tokens_per_word: of the random texts, by the model's own count.
        repeat: tokens that an immediate repeat found cached; None where the server does not say.
        longest: no prompt may be longer (tokens): a longer one was refused.
        solo_s: an attacker's time to first token on an idle server.
    """

    pool: Pool | None
    tokens_per_word: float
    repeat: int | None
    longest: int = LONGEST_PROMPT
    solo_s: float = 0.0

    @property
    def block(self) -> int:
        """Tokens of a block, or a guess."""
        return self.pool.block_tokens if self.pool else USUAL_BLOCK

    @property
    def prefix(self) -> int:
        """The victim's prefix: a tenth of the pool at most."""
        wanted = min(USUAL_PREFIX, self.pool.tokens // 10) if self.pool else USUAL_PREFIX
        return min(max(wanted, SHORTEST), self.longest)

    @property
    def prompt(self) -> int:
        """The attackers' usual prompt: an eighth of the pool.

        One of the victim's is as long: a few full steps are then no large part of what it may wait.
        """
        wanted = self.pool.tokens // 8 if self.pool else USUAL_PROMPT
        return min(max(wanted, SHORTEST), self.longest)

    @property
    def in_flight(self) -> int:
        """So many requests at once pin more than the pool."""
        fewest, most = IN_FLIGHT
        pinning = math.ceil(1.2 * self.pool.tokens / self.prompt) if self.pool else fewest
        return min(max(pinning, fewest), most)

    @property
    def reserve(self) -> int:
        """What the victim keeps: a prefix, a prompt that it adds under attack, room to move."""
        return 2 * self.prefix + self.prompt

    @property
    def strict(self) -> int:
        """The strict tenant's reserve and ceiling."""
        return STRICT_BLOCKS * self.block

    def turn(self, kept: bool) -> float:
        """Tokens that replace all that the pool holds, but for what is kept for the victims.

        Infinite if its size is unknown.
        """
        if self.pool is None:
            return math.inf
        return self.pool.tokens - (self.prefix + self.prompt + self.strict if kept else 0)

    def words(self, tokens: float) -> int:
        """How many random words make so many tokens."""
        return max(1, round(tokens / self.tokens_per_word))


async def measure(audit: Audit, probe: Prober) -> Scale:
    """Learns what the target's tokens are, whether it shows what is cached, and what it takes.

    Raises:
        Refused: the target answers no prompt.
    """
    text, attacker = audit.words(SAMPLE_WORDS), audit.client(1)
    first = await probe(attacker, text)
    again = await probe(attacker, text)
    tokens = first.prompt_tokens or 3 * SAMPLE_WORDS
    scale = Scale(await find_pool(audit.target), tokens / SAMPLE_WORDS, again.cached_tokens)
    while True:
        try:
            alone = await probe(attacker, audit.words(scale.words(scale.prompt)))
        except Refused:
            if scale.prompt <= SHORTEST:
                raise
            scale = replace(scale, longest=max(SHORTEST, scale.prompt // 2))
        else:
            return replace(scale, solo_s=alone.ttft_s)
