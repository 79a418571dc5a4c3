"""One recorded sequence of a tenant's requests, repeated beside a flood: non-interference."""

import asyncio
import random
import time
from collections.abc import Sequence

from saltwall_security.client import Client
from saltwall_security.errors import AuditError
from saltwall_security.prober import Prober, Refused
from saltwall_security.suite import Audit
from saltwall_security.suites.eviction.scale import REPLAY_BLOCKS, Scale
from saltwall_security.target import Operator

PROMPTS = 5
"""Different ones: more than a strict tenant's ceiling holds."""
RECENT_PART = 0.5
MARKER_BLOCKS = 1.5
COLD_S = 30.0
POLL_S = 0.1


class Replay:
    """A tenant that sends the same requests one at a time, alone and beside others.

    What it finds cached is then a function of its own requests alone, or it sees what others do.
    Between the two its salt is rotated, so that both begin with nothing cached.
    """

    def __init__(
        self, audit: Audit, probe: Prober, scale: Scale, client: Client, length: int
    ) -> None:
        """
        Args:
            length: requests in the sequence.
        """
        self._audit, self._probe, self._client = audit, probe, client
        tokens = (REPLAY_BLOCKS + 0.5) * scale.block
        self._prompts = [audit.words(scale.words(tokens)) for _ in range(PROMPTS)]
        self._marker = audit.words(scale.words(MARKER_BLOCKS * scale.block))
        self._order = order(length, audit.rng)
        self.alone: list[int | None] = []
        self.beside: list[int | None] = []
        self.refused = ""

    @property
    def is_complete(self) -> bool:
        """Whether both runs have come to their end."""
        return not self.refused and len(self.beside) == len(self.alone) == len(self._order)

    @property
    def differences(self) -> int:
        """How many requests found something else beside the flood than alone."""
        return sum(a != b for a, b in zip(self.alone, self.beside, strict=False))

    async def record(self, operator: Operator) -> None:
        """The sequence, alone; then nothing of it is cached any more.

        A refusal ends it, as does a new salt that does not come: `is_complete` is then false.
        """
        try:
            await self._record(operator)
        except AuditError as error:
            self.refused = str(error)

    async def _record(self, operator: Operator) -> None:
        await self._send(self._marker)
        self.alone = [await self._send(self._prompts[number]) for number in self._order]
        await self._send(self._marker)
        await asyncio.to_thread(operator.rotate, self._client.tenant, 0.0)
        began = time.monotonic()
        while await self._send(self._marker):
            if time.monotonic() - began > COLD_S:
                raise AuditError("what a tenant had cached is found long after its rotation")
            await asyncio.sleep(POLL_S)

    async def half(self, number: int) -> None:
        """The first or the second half of the sequence, beside whatever else there is.

        A refusal ends it: `is_complete` is then false.
        """
        if self.refused:
            return
        middle = len(self._order) // 2
        part = self._order[:middle] if number == 0 else self._order[middle:]
        try:
            for each in part:
                self.beside.append(await self._send(self._prompts[each]))
        except Refused as error:
            self.refused = str(error)

    async def _send(self, prompt: str) -> int | None:
        return (await self._probe(self._client, prompt)).cached_tokens


def order(length: int, rng: random.Random) -> Sequence[int]:
    """Which prompt comes when: often one of the last two; the second half begins with a repeat."""
    chosen = list(range(PROMPTS))[: max(1, length // 2)]
    while len(chosen) < length:
        recent = chosen[-2:]
        again = rng.random() < RECENT_PART
        chosen.append(rng.choice(recent) if again else rng.randrange(PROMPTS))
    chosen[length // 2] = chosen[length // 2 - 1]
    return chosen
