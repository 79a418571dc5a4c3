"""Times to first token of cached and of fresh prompts, measured in turn and in random order."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from saltwall_security.prober import Prober, Refused
from saltwall_security.suite import Audit
from saltwall_security.suites.timing.length import Length

PATIENCE = 3


@dataclass(frozen=True)
class Samples:
    """Seconds to the first token; what has the same index was measured in the same block.

    Args:
        victims: the spy sends what the victim has just sent.
        fresh: the spy sends what nobody has sent.
        own: the victim sends again what it has just sent (the control).
        own_fresh: the victim sends what nobody has sent.
    """

    victims: list[float] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    own_fresh: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.victims)


class Sampler:
    """Takes samples of all four kinds, block by block.

    A block has one of each, in random order, so that drift and load meet all alike. What the
    victim sends fresh in one block is what both send again in the next: it is cached by then, and
    no request is made for that alone.
    """

    def __init__(self, audit: Audit, probe: Prober, length: Length) -> None:
        self._audit, self._probe, self._length = audit, probe, length
        self._victim, self._spy = audit.client(0), audit.client(1)
        self._cached: str | None = None
        self._spent_s = 0.0
        self.samples = Samples()
        self.dropped = 0
        """Blocks in which a request was refused."""

    @property
    def block_s(self) -> float:
        """What a block has taken so far, on average; what is expected, before the first."""
        return self._spent_s / len(self.samples) if self.samples else self._length.block_s

    async def fill(self, pairs: int, left_s: float, enough: Callable[[Samples], bool]) -> bool:
        """Takes samples until there are so many of each kind, or enough, or it is too late.

        Args:
            left_s: seconds of the suite's time that must be left.

        Returns:
            Whether there was time for all.

        Raises:
            Refused: the target refuses one block after the other.
        """
        refused = 0
        while len(self.samples) < pairs and not enough(self.samples):
            if self._audit.left_s - self.block_s < left_s:
                return False
            began = time.monotonic()
            try:
                await self._block()
                refused = 0
            except Refused:
                self._cached = None
                self.dropped += 1
                refused += 1
                if refused == PATIENCE:
                    raise
            self._spent_s += time.monotonic() - began
            self._audit.say(f"{len(self.samples)} of up to {pairs} samples of each kind")
        return True

    async def _block(self) -> None:
        if self._cached is None:
            self._cached = self._audit.words(self._length.words)
            await self._probe(self._victim, self._cached)
        following = self._audit.words(self._length.words)
        requests = [
            (self.samples.victims, self._spy, self._cached),
            (self.samples.fresh, self._spy, self._audit.words(self._length.words)),
            (self.samples.own, self._victim, self._cached),
            (self.samples.own_fresh, self._victim, following),
        ]
        self._audit.rng.shuffle(requests)
        taken = []
        for kind, client, prompt in requests:
            answer = await self._probe(client, prompt)
            taken.append((kind, answer.ttft_s))
        for kind, seconds in taken:
            kind.append(seconds)
        self._cached = following
