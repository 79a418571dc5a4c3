"""Times to first token of cached and of fresh prompts, measured in turn and in random order."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from saltwall_security.client import Client
from saltwall_security.prober import Prober, Refused
from saltwall_security.suite import Audit
from saltwall_security.suites.timing.length import Length

PATIENCE = 3
Prompts = tuple[str, str]


@dataclass(frozen=True)
class Samples:
    """Seconds to the first token; what has the same index is one tenant's, from one block.

    Args:
        others: it sends what the other tenant has just sent.
        own: it sends what it has itself just sent (the control).
        fresh: it sends what nobody has sent.
    """

    others: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.fresh)


class Sampler:
    """Takes samples block by block, of two tenants, each of which spies on the other.

    In a block each tenant sends one prompt of each kind, all in random order, so that drift and
    load meet all alike. What it sends fresh in one block is what both send again in the next: it is
    cached by then, and no request is made for that alone.
    """

    def __init__(self, audit: Audit, probe: Prober, length: Length) -> None:
        self._audit, self._probe, self._length = audit, probe, length
        self._tenants = (audit.client(0), audit.client(1))
        self._sent: Prompts | None = None
        self._spent_s = 0.0
        self.samples = Samples()
        self.dropped = 0
        """Blocks in which a request was refused."""

    @property
    def sample_s(self) -> float:
        """What a sample of each kind has taken so far, on average; at first, what is expected."""
        return self._spent_s / len(self.samples) if self.samples else self._length.sample_s

    async def fill(self, count: int, left_s: float, enough: Callable[[Samples], bool]) -> bool:
        """Takes samples until there are so many of each kind, or enough, or it is too late.

        Args:
            left_s: seconds of the suite's time that must be left.

        Returns:
            Whether there was time for all.

        Raises:
            Refused: the target refuses one block after the other.
        """
        refused = 0
        while len(self.samples) < count and not enough(self.samples):
            if self._audit.left_s - len(self._tenants) * self.sample_s < left_s:
                return False
            began = time.monotonic()
            try:
                await self._block()
                refused = 0
            except Refused:
                self._sent = None
                self.dropped += 1
                refused += 1
                if refused == PATIENCE:
                    raise
            self._spent_s += time.monotonic() - began
            self._audit.say(f"{len(self.samples)} samples of each kind, next look at {count}")
        return True

    async def _block(self) -> None:
        sent = self._sent or await self._prompts(send=True)
        following = await self._prompts(send=False)
        requests = [
            request
            for me, other in ((0, 1), (1, 0))
            for request in (
                ("others", me, sent[other]),
                ("own", me, sent[me]),
                ("fresh", me, following[me]),
            )
        ]
        self._audit.rng.shuffle(requests)
        taken = {
            (kind, me): await self._ttft_s(self._tenants[me], prompt)
            for kind, me, prompt in requests
        }
        for (kind, _), seconds in sorted(taken.items()):
            getattr(self.samples, kind).append(seconds)
        self._sent = following

    async def _prompts(self, *, send: bool) -> Prompts:
        """A fresh one for each tenant."""
        words = self._length.words
        prompts = (self._audit.words(words), self._audit.words(words))
        if send:
            for client, prompt in zip(self._tenants, prompts, strict=True):
                await self._probe(client, prompt)
        return prompts

    async def _ttft_s(self, client: Client, prompt: str) -> float:
        return (await self._probe(client, prompt)).ttft_s
