"""Attackers that keep so many requests in flight."""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx

from saltwall_security.client import Client
from saltwall_security.prober import Prober
from saltwall_security.suite import Audit
from saltwall_security.suites.eviction.scale import Scale
from saltwall_security.suites.eviction.strategies import Reading, Strategy

SETBACK_S = 0.2
"""How long an attacker waits after a refusal."""
SHORTEST_HOLD_S = 1.0
GLANCE_S = 0.1
_EVENT, _ERROR = "data: {", 'data: {"error"'


class Flood:
    """One flood, and what has become of it so far.

    Args:
        computed: tokens that the server has computed for it, as the auditor counts them.
        refusals: by status, or by the transport's error.
        waits: the attackers' own times to first token (seconds), of requests that were open when
            they hung up as well: their time until then.
        solo_s: the same on an idle server.
    """

    def __init__(self, audit: Audit, probe: Prober, scale: Scale, strategy: Strategy) -> None:
        self._audit, self._probe, self._scale, self._strategy = audit, probe, scale, strategy
        self._dice = random.Random(f"{audit.seed}/{strategy.name}")  # noqa: S311  # guards nothing
        self.solo_s = scale.solo_s
        self.computed = 0.0
        self.requests = 0
        self.refusals: Counter[str] = Counter()
        self.waits: list[float] = []
        self._waiting: dict[asyncio.Task[None] | None, float] = {}

    async def attack(self, client: Client, first: int) -> None:
        """One request after the other, for ever."""
        for turn in itertools.count(first):
            try:
                await self._request(client, turn)
                self.requests += 1
            except httpx.HTTPStatusError as error:
                await self._refused(str(error.response.status_code))
            except httpx.HTTPError as error:
                await self._refused(type(error).__name__)

    def hang_up(self) -> None:
        """Notes how long those have waited that have no token yet."""
        now = time.perf_counter()
        self.waits += [now - began for began in self._waiting.values()]

    async def _refused(self, reason: str) -> None:
        self.refusals[reason] += 1
        self._waiting.pop(asyncio.current_task(), None)
        await asyncio.sleep(SETBACK_S)

    async def _request(self, client: Client, turn: int) -> None:
        sizes = self._strategy.prompts
        tokens = min(self._scale.prompt * sizes[turn % len(sizes)], self._scale.longest)
        text = self._audit.words(self._scale.words(tokens), self._dice)
        path, fields = self._probe.request(text)
        self._waiting[asyncio.current_task()] = time.perf_counter()
        async with client.opened(path, {**fields, **self._options()}) as response:
            if response.is_error:
                await response.aread()
                response.raise_for_status()
            events = _events(response)
            if self._strategy.reading is Reading.NOTHING:
                await self._hold(events, tokens)
            else:
                await self._read(events, tokens)

    async def _read(self, events: AsyncIterator[str], tokens: float) -> None:
        async for _ in events:
            waited_since = self._waiting.pop(asyncio.current_task(), None)
            if waited_since is not None:
                self.waits.append(time.perf_counter() - waited_since)
                self.computed += tokens
            self.computed += 1
            if self._strategy.reading is Reading.FIRST:
                return

    async def _hold(self, events: AsyncIterator[str], tokens: float) -> None:
        """Long enough for the server to compute all that is in flight; then looks if it has."""
        self._waiting.pop(asyncio.current_task(), None)
        await asyncio.sleep(max(SHORTEST_HOLD_S, self._scale.solo_s * self._scale.in_flight))
        try:
            async with asyncio.timeout(GLANCE_S):
                if await anext(events, None) is not None:
                    self.computed += tokens
        except TimeoutError:
            return

    def _options(self) -> dict[str, object]:
        strategy = self._strategy
        options: dict[str, object] = {"max_tokens": strategy.answer_tokens}
        if strategy.answer_tokens > 1:
            options["ignore_eos"] = True
        if strategy.sequences > 1:
            options |= {"n": strategy.sequences, "temperature": 1}
        if strategy.scoped:
            options["cache_salt"] = self._audit.words(3, self._dice)
        return options


async def _events(response: httpx.Response) -> AsyncIterator[str]:
    async for line in response.aiter_lines():
        if line.startswith(_ERROR):
            raise httpx.RemoteProtocolError("the stream ended with an error")
        if line.startswith(_EVENT):
            yield line


@asynccontextmanager
async def flooding(flood: Flood, clients: Sequence[Client], in_flight: int) -> AsyncIterator[None]:
    """Attacks until the end of the block, then hangs up on everything."""
    tasks = [
        asyncio.create_task(flood.attack(clients[number % len(clients)], number))
        for number in range(in_flight)
    ]
    try:
        yield
    finally:
        flood.hang_up()
        for task in tasks:
            task.cancel()
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(error, Exception):
                raise error
