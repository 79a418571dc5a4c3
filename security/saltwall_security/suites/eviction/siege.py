"""Victims that are watched alone, under attack, and alone again."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from saltwall_security.client import Answer, Client
from saltwall_security.engine_control import Account
from saltwall_security.prober import Prober, Refused
from saltwall_security.suite import Audit
from saltwall_security.suites.eviction.cast import Cast, Promise, armed
from saltwall_security.suites.eviction.flood import Flood, flooding
from saltwall_security.suites.eviction.pool import find_remains
from saltwall_security.suites.eviction.replay import Replay
from saltwall_security.suites.eviction.scale import Scale
from saltwall_security.suites.eviction.strategies import Strategy
from saltwall_security.suites.eviction.trial import Cold, Phase, Trial
from saltwall_security.suites.eviction.victim import Asked, Prefix
from saltwall_security.target import Tenant

ALONE_QUESTIONS, ALONE_SHORT = 2, 8
SHORT_WORDS = 2
"""Of the victim's short prompts, which fill no block: they evict nothing, and keep nothing warm."""
PAUSE_S = 0.2
"""Between the victim's short prompts under attack: they must not be an attack of their own."""
ROUNDS = 5
"""How often the pool is turned over at most in one attack: hits are counted, and do not vary."""
TURN_PART = 0.6
"""Of the time for a round, where nobody knows when the pool has turned over."""
LATE_S = 30.0
"""How long what is still open at the end of an attack may take."""
SETTLE_S = 30.0


class Siege:
    """The victims of all attacks of a run; what they have cached stays the same."""

    def __init__(self, audit: Audit, probe: Prober, cast: Cast, scale: Scale) -> None:
        self._audit, self._probe, self._cast, self._scale = audit, probe, cast, scale
        self._prefix = self._new(cast.victim, scale.prefix)
        self._exposed = self._new(cast.exposed, scale.prefix)
        self._alone: Phase | None = None

    def _new(self, client: Client, tokens: int) -> Prefix:
        text = self._audit.words(self._scale.words(tokens))
        return Prefix(self._probe, client, text, self._audit.words)

    async def attack(
        self, strategy: Strategy, until: float, enough: float, replays: Sequence[Replay] = ()
    ) -> Trial:
        """One attack, with the victims alone before and after.

        Args:
            until: when it must end (monotonic clock), whatever was seen by then.
            enough: when no further round begins.
            replays: run beside the flood, half of it before the pool has turned over.
        """
        began = time.monotonic()
        before = self._alone or await self._watch_alone([])
        attacked, flood = Phase(), Flood(self._audit, self._probe, self._scale, strategy)
        open_questions: set[asyncio.Task[None]] = set()
        grown: list[Prefix] = []
        turned = None if self._scale.pool is None else False
        async with armed(self._audit, self._cast, strategy) as clients:
            tenants = [client.tenant for client in clients]
            async with flooding(flood, clients, self._scale.in_flight):
                await self._start(attacked, flood, grown, replays, until)
                for _ in range(ROUNDS):
                    round_began = time.monotonic()
                    turned = await self._turn(flood, attacked, until, enough) or turned
                    open_questions = await self._ask(attacked, grown, until)
                    now = time.monotonic()
                    if open_questions or now + (now - round_began) > enough:
                        break
                await _within(until + LATE_S, *(replay.half(1) for replay in replays))
                during = await find_remains(self._audit.target, tenants)
            # What was evicted stays so when the attackers have gone: a late answer still counts.
            await _finish(open_questions)
            remains = await self._settle(tenants)
        self._alone = await self._watch_alone(grown)
        seconds = time.monotonic() - began
        return Trial(
            strategy, before, attacked, self._alone, flood, turned, during, remains, seconds
        )

    async def _watch_alone(self, grown: Sequence[Prefix]) -> Phase:
        phase = Phase()
        prefixes = [*grown, self._prefix]  # the one that stays is the most recently used
        for prefix in (*prefixes, self._exposed):  # what the last attack has taken is cached again
            await self._count(phase, [], prefix.ask)
        for _ in range(ALONE_SHORT):
            await self._count(phase, phase.waits, self._short)
        for _ in range(ALONE_QUESTIONS):
            for prefix in prefixes:
                await self._question(phase, prefix, alone=True)
            await self._question(phase, self._exposed, alone=True)
        return phase

    async def _start(
        self,
        phase: Phase,
        flood: Flood,
        grown: list[Prefix],
        replays: Sequence[Replay],
        until: float,
    ) -> None:
        """Under attack, a tenant caches more within its reserve; replays run halfway."""
        beginning = [replay.half(0) for replay in replays]
        if self._cast.promise is Promise.GIVEN:
            beginning.append(self._grow(phase, flood, grown))
        await _within(until, *beginning)

    async def _grow(self, phase: Phase, flood: Flood, grown: list[Prefix]) -> None:
        more, answer = self._new(self._cast.victim, self._scale.prompt), None
        computed = flood.computed
        try:
            answer = await more.ask()
            grown.append(more)
        except Refused as error:
            phase.refused.append(error)
        finally:  # also where it is given up
            ttft_s = answer.ttft_s if answer else None
            phase.cold = Cold(ttft_s, self._scale.prompt, flood.computed - computed)

    async def _turn(self, flood: Flood, phase: Phase, until: float, enough: float) -> bool:
        """Waits until the flood has replaced what the pool holds, with short prompts meanwhile."""
        turned = flood.computed + self._scale.turn(self._cast.promise is Promise.GIVEN)
        now = time.monotonic()
        end = until if turned < math.inf else now + TURN_PART * (min(until, enough) - now)
        while time.monotonic() < end:
            if flood.computed >= turned:
                return True
            began = time.monotonic()
            if not await _within(end, self._count(phase, phase.waits, self._short)):
                phase.waits.append(time.monotonic() - began)
                phase.unanswered += 1
            await _within(end, asyncio.sleep(PAUSE_S))
        return False

    async def _ask(
        self, phase: Phase, grown: Sequence[Prefix], until: float
    ) -> set[asyncio.Task[None]]:
        """A question about each prefix; returns those that are still open."""

        async def victim() -> None:
            for prefix in (self._prefix, *grown):
                await self._question(phase, prefix)

        asked = {
            asyncio.create_task(victim()),
            asyncio.create_task(self._question(phase, self._exposed)),
        }
        _, pending = await asyncio.wait(asked, timeout=max(0.0, until - time.monotonic()))
        return pending

    async def _question(self, phase: Phase, prefix: Prefix, alone: bool = False) -> None:
        try:
            asked = await prefix.ask(alone)
        except Refused as error:
            phase.refused.append(error)
            return
        if prefix is self._exposed:
            phase.exposed.append(asked)
        else:
            phase.questions.append(asked)
            phase.waits.append(asked.ttft_s)

    async def _short(self) -> Answer:
        return await self._probe(self._cast.victim, self._audit.words(SHORT_WORDS))

    @staticmethod
    async def _count(
        phase: Phase, times: list[float], ask: Callable[[], Awaitable[Answer | Asked]]
    ) -> None:
        try:
            times.append((await ask()).ttft_s)
        except Refused as error:
            phase.refused.append(error)

    async def _settle(self, attackers: Sequence[Tenant]) -> Account | None:
        """Waits until nothing is left of the attackers; what is, when patience ends."""
        began = time.monotonic()
        while True:
            remains = await find_remains(self._audit.target, attackers)
            if remains in (None, Account()) or time.monotonic() - began > SETTLE_S:
                return remains
            await asyncio.sleep(PAUSE_S)


async def _within(until: float, *doing: Coroutine[Any, Any, Any]) -> bool:
    """Does some things at once; False if they had to be given up."""
    try:
        async with asyncio.timeout(max(0.0, until - time.monotonic())):
            await asyncio.gather(*doing)
    except TimeoutError:
        return False
    return True


async def _finish(tasks: set[asyncio.Task[None]]) -> None:
    if not tasks:
        return
    _, late = await asyncio.wait(tasks, timeout=LATE_S)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
