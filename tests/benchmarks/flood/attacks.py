"""What a tenant with valid keys can do to the others: each attack is one request, sent for ever."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import httpx
from flood.completion import Answer, complete, connect
from flood.texts import Unique

ATTACKERS = 8
"""Requests that the attackers keep in flight."""
CEILING = "30%"
"""The attackers' ceiling where the attack is at its edge."""
AT_CEILING = (2250, 40, 1100)  # words; 30 % of 320 blocks of 32 tokens are some 2,400 words
AT_THE_CEILING = ("sizes",)
"""The attacks that are made under that ceiling."""
SETBACK_S = 0.2
"""How long an attacker waits after it was refused (seconds)."""

Attack = Callable[[httpx.AsyncClient, Unique, int], Awaitable[Answer]]


async def prefill(client: httpx.AsyncClient, unique: Unique, turn: int) -> Answer:
    """One token for a long prompt: nothing but prefill and new blocks."""
    return await complete(client, unique(long_words(turn)), max_tokens=1)


async def generations(client: httpx.AsyncClient, unique: Unique, turn: int) -> Answer:
    """200 tokens after a long prompt: pins more blocks than there are, for a long time."""
    return await complete(client, unique(long_words(turn)), max_tokens=200)


async def decodes(client: httpx.AsyncClient, unique: Unique, turn: int) -> Answer:
    """200 tokens after a short prompt: takes part in every step, and needs few blocks."""
    return await complete(client, unique(50), max_tokens=200)


async def aborts(client: httpx.AsyncClient, unique: Unique, turn: int) -> Answer:
    """Hangs up at the first byte, and starts again."""
    return await complete(client, unique(long_words(turn)), leave=True, max_tokens=200)


async def n8(client: httpx.AsyncClient, unique: Unique, turn: int) -> Answer:
    """Eight sequences a request: sixty-four that decode at once."""
    return await complete(client, unique(300), max_tokens=64, n=8, temperature=1)


async def sizes(client: httpx.AsyncClient, unique: Unique, turn: int) -> Answer:
    """Now a request that fills the attackers' ceiling, now a tiny one, now half of it."""
    return await complete(client, unique(AT_CEILING[turn % len(AT_CEILING)]), max_tokens=16)


def long_words(turn: int) -> int:
    """800 to 1,100 words: eight such prompts fill a pool of 320 blocks of 32 tokens."""
    return 800 + 100 * (turn % 4)


STRATEGIES: Final[Mapping[str, Attack]] = {
    attack.__name__: attack for attack in (prefill, generations, decodes, aborts, n8, sizes)
}


@dataclass
class Toll:
    """How many requests the attackers got through, and why others were refused."""

    requests: int = 0
    refusals: Counter[str] = field(default_factory=Counter)


@asynccontextmanager
async def flood(
    strategy: str, base_url: str, keys: Sequence[str], seed: int
) -> AsyncIterator[Toll]:
    """Attacks until the end of the block, then hangs up on everything."""
    toll, unique = Toll(), Unique(seed)
    attack = STRATEGIES[strategy]

    async def attacker(client: httpx.AsyncClient, first: int) -> None:
        for turn in itertools.count(first):
            try:
                await attack(client, unique, turn)
                toll.requests += 1
            except httpx.HTTPError as error:
                toll.refusals[_reason(error)] += 1
                await asyncio.sleep(SETBACK_S)

    async with AsyncExitStack() as clients:
        tasks = []
        for number in range(ATTACKERS):
            key = keys[number % len(keys)]
            client = await clients.enter_async_context(connect(base_url, key))
            tasks.append(asyncio.create_task(attacker(client, number)))
        try:
            yield toll
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            for error in ended:
                if isinstance(error, Exception):
                    raise error


def _reason(error: httpx.HTTPError) -> str:
    return str(error) if isinstance(error, httpx.HTTPStatusError) else type(error).__name__
