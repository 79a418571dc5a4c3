"""Who attacks whom, with prompts how long; and checks made of trials."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from saltwall_security.check import Check
from saltwall_security.client import Answer, Client
from saltwall_security.suite import Audit
from saltwall_security.suites.isolation.routes import CHAT_ROUTE, PLAIN_ROUTE, Route
from saltwall_security.suites.isolation.trial import (
    EVICTED,
    INTERFERES,
    NO_ANSWER,
    UNCONFIRMED,
    Ask,
    Outcome,
    Trial,
    Way,
    attempt,
    cached,
    control,
    counted,
    figures,
    interferes,
    sent,
    summary,
    verdict,
)

FEWEST_WORDS, MOST_WORDS = 12, 1600
AT_ONCE, RETRIES, REPEATS = 4, 2, 2
LONG_TOKENS = 1000
"""Of a long prompt: it fits twice into small contexts."""
ADVICE = (
    "Put a secret of the platform, one a tenant, into every block hash, and take no word of the "
    "client's for it: what a client writes can at most divide its own cache."
)


@dataclass(frozen=True)
class Bench:
    """A victim, a spy, and how to write prompts that are worth caching.

    Args:
        route: where requests go that could go anywhere.
        words: the fewest whose repeat hits there.
        floor: cached tokens there of prompts that nobody has sent.
        long_words: of a prompt that is several times longer.
    """

    audit: Audit
    victim: Client
    spy: Client
    route: Route
    words: int
    floor: int
    long_words: int

    def fresh(self) -> str:
        """A prompt of several blocks that nobody has sent."""
        return self.audit.words(3 * self.words)

    def long(self) -> str:
        """A much longer one."""
        return self.audit.words(self.long_words)

    def swapped(self) -> "Bench":
        """The victim spies on the spy."""
        return replace(self, victim=self.spy, spy=self.victim)

    def salt(self, client: Client, scope: str) -> str:
        """What a tenant writes into `cache_salt` for a part of its own cache."""
        own = client.tenant.cache_salt
        return scope if own is None else f"{own}.{scope}"

    async def trials(self, ways: Sequence[Way]) -> list[Trial]:
        """Makes them, some at a time, while there is time."""
        made: list[Trial] = []
        for start in range(0, len(ways), AT_ONCE):
            group = ways[start : start + AT_ONCE]
            if self.audit.left_s <= 0:
                lacking = "no time was left"
                made += [Trial(way.name, Outcome.UNTOLD, why=lacking) for way in group]
                continue
            made += await asyncio.gather(*(self._told(way) for way in group))
        return made

    async def _told(self, way: Way) -> Trial:
        """A trial, made again where others' load has evicted what there was to see.

        Unless it was not others' load. Where the connection gave out as well: with new prompts, as
        the server may have heard the old ones.
        """
        trial = await attempt(way, self.fresh)
        if trial.why == EVICTED and await interferes(way, trial, self.fresh):
            return replace(trial, outcome=Outcome.LEAK, why=INTERFERES)
        for _ in range(RETRIES):
            if trial.why not in (EVICTED, NO_ANSWER) or self.audit.left_s <= 0:
                break
            trial = await attempt(way, self.fresh)
        if trial.outcome is Outcome.LEAK:
            return await self._confirmed(way, trial)
        refused = trial.outcome in (Outcome.REFUSED, Outcome.NOT_OFFERED)
        if refused and not await self._serves():
            return replace(trial, outcome=Outcome.UNTOLD)
        return trial

    async def _serves(self) -> bool:
        """Whether what both tenants may ask is served, so that a refusal is of what was asked."""
        asked = (sending(client, self.route.ask) for client in (self.victim, self.spy))
        answers = [await sent(ask, self.audit.words(FEWEST_WORDS)) for ask in asked]
        return all(answer is not None and answer.ok for answer in answers)

    async def _confirmed(self, way: Way, trial: Trial) -> Trial:
        """What is left of a hit if all is done again: of a server with several caches each may have
        its own of what a template adds, or not have it."""
        floor = trial.floor or 0
        for _ in range(REPEATS):
            again = await attempt(replace(way, floor=floor), self.fresh)
            floor = max(floor, again.floor or 0)
            explained = (trial.seen or 0) <= floor
            if (again.outcome is Outcome.LEAK) is not explained:
                return again
            trial = again if explained else trial
        return replace(trial, outcome=Outcome.UNTOLD, why=UNCONFIRMED)


async def set_up(audit: Audit) -> Bench | str:
    """Finds out where and how long a prompt must be to be cached; or says why that cannot be."""
    spy = audit.client(1)
    lacking = []
    for route in (PLAIN_ROUTE, CHAT_ROUTE):
        first = await sent(sending(spy, route.ask), audit.words(FEWEST_WORDS))
        if first is not None and counted(first):
            found = await _measured(audit, spy, route)
            if isinstance(found, Bench):
                return found
            lacking.append(f"on {route.name} {found}")
        else:
            status = first.status if first is not None else "no answer"
            lacking.append(f"on {route.name} no answer to the spy counts its tokens ({status})")
    return ", and ".join(lacking)


async def _measured(audit: Audit, spy: Client, route: Route) -> Bench | str:
    ask, words = sending(spy, route.ask), FEWEST_WORDS
    while words <= MOST_WORDS and audit.left_s > 0:
        prompt = audit.words(words)
        await sent(ask, prompt)
        again, unseen = await sent(ask, prompt), await sent(ask, audit.words(words))
        hits, floor = cached(again), cached(unseen) or 0
        if hits is not None and hits > floor:
            tokens = again.prompt_tokens if again is not None else None
            long_words = max(LONG_TOKENS * words // (tokens or words), 9 * words)
            return Bench(audit, audit.client(0), spy, route, words, floor, long_words)
        words *= 2
    return (
        f"no repeat of up to {words // 2} words shows cached tokens (either the server does not "
        "show them, or it caches nothing)"
    )


def levelled(trials: Sequence[Trial]) -> Sequence[Trial]:
    """Trials on one route: neither hits nor controls count that any unseen prompt of it reached."""
    floor = max((trial.floor or 0 for trial in trials), default=0)

    def level(trial: Trial) -> Trial:
        seen = trial.seen if trial.outcome is Outcome.LEAK else trial.victim
        told = trial.outcome in (Outcome.LEAK, Outcome.HELD) and trial.why != INTERFERES
        if not told or (seen or 0) > floor:
            return trial
        return replace(trial, outcome=Outcome.UNTOLD, floor=floor, why=UNCONFIRMED)

    return [level(trial) for trial in trials]


def check(name: str, claim: str, trials: Sequence[Trial], advice: str = ADVICE) -> Check:
    """A check of G1 over trials."""
    return Check(
        f"isolation/{name}",
        "G1",
        verdict(trials),
        claim,
        summary(trials),
        figures(trials),
        control(trials),
        table=[trial.row() for trial in trials],
        advice=advice,
    )


def sending(client: Client, send: Callable[[Client, str], Awaitable[Answer]]) -> Ask:
    """The way of `send`, as this client."""
    return lambda prompt: send(client, prompt)
