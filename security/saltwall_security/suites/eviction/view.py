"""The attacker's own view: whether a neighbour's activity shows in what it finds of its own.

Prime and probe, as against processor caches (Osvik, Shamir, Tromer, "Cache Attacks and
Countermeasures: the Case of AES", CT-RSA 2006): fill the cache, let the neighbour act, and count
what has survived.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from saltwall_security.client import Client
from saltwall_security.prober import Prober
from saltwall_security.suite import Audit
from saltwall_security.suites.eviction.scale import Scale

NEIGHBOURS_PROMPTS = 2
SURVIVED_PART = 0.5
"""Of a prompt that counts as still there; the sweep ends at the first that is not."""


@dataclass
class View:
    """Tokens that the spy found of its own prompts, each time after the neighbour was quiet, or
    had sent some prompts."""

    quiet: list[int] = field(default_factory=list)
    active: list[int] = field(default_factory=list)

    @property
    def shows(self) -> bool:
        """Whether the two can be told apart by a threshold."""
        return bool(self.active) and max(self.active) < min(self.quiet, default=0)

    @property
    def lost(self) -> float:
        """How many tokens fewer it finds after activity, on average."""
        return float(np.mean(self.quiet) - np.mean(self.active)) if self.active else 0.0


class Spy:
    """A tenant that keeps the whole cache full of its own prompts."""

    def __init__(self, audit: Audit, probe: Prober, scale: Scale, client: Client) -> None:
        self._audit, self._probe, self._scale, self._client = audit, probe, scale, client
        self._recent: list[str] = []

    @property
    def cost_s(self) -> float:
        """What it takes about to fill the cache; infinite if nobody knows how large it is."""
        return math.inf if self._scale.pool is None else self._count() * self._scale.solo_s

    async def watch(self, neighbour: Client, rounds: int) -> View:
        """Fills the cache, and looks at it after quiet and activity, in random order.

        Raises:
            Refused: a prompt was not answered.
        """
        for _ in range(self._count()):
            self._recent.insert(0, self._text())
            await self._find(self._recent[0])
        await self._sweep()  # what the filling itself has left of its beginning
        view = View()
        for _ in range(rounds):
            for active in self._audit.rng.sample((False, True), 2):
                for _ in range(NEIGHBOURS_PROMPTS if active else 0):
                    await self._probe(neighbour, self._text())
                (view.active if active else view.quiet).append(await self._sweep())
        return view

    async def _sweep(self) -> int:
        """What is left, from the most recently used on: so that looking evicts nothing unseen."""
        found = seen = 0
        for prompt in self._recent:
            cached = await self._find(prompt)
            seen += 1
            found += cached
            if cached < SURVIVED_PART * self._scale.prompt:
                break
        self._recent = [*reversed(self._recent[:seen]), *self._recent[seen:]]
        return found

    async def _find(self, prompt: str) -> int:
        return (await self._probe(self._client, prompt)).cached_tokens or 0

    def _text(self) -> str:
        return self._audit.words(self._scale.words(self._scale.prompt))

    def _count(self) -> int:
        pool = self._scale.pool
        return 0 if pool is None else math.ceil(pool.tokens / self._scale.prompt)
