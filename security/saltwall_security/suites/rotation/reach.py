"""What a tenant had cached, after its salt was rotated, and after it was suspended or purged."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

from saltwall_security.check import Check, Verdict, judge
from saltwall_security.engine_control import EngineControl
from saltwall_security.errors import AuditError
from saltwall_security.prober import Prober, Refused
from saltwall_security.running import Running
from saltwall_security.suite import Audit
from saltwall_security.target import Operator, Tenant

WORDS, PROMPTS = 150, 3
GRACE_S = 600.0
RUNS_S, ENDLESS_S = 8.0, 120.0
"""How long requests are made to run: past a rotation, and past everything."""
RATE_TOKENS = 32
MOST_TOKENS = 3000
LIVE_WITHIN_S = 10.0
STARTS_WITHIN_S, ENDS_WITHIN_S, CUT_WITHIN_S = 60.0, 90.0, 20.0
CLAIMS = {
    "unreachable": "After a rotation nothing that was cached under the old salt is hit",
    "grace": "A request that runs under the old salt finishes within its grace",
    "cut": "A grace of nothing ends what runs under the old salt",
    "suspended": "A tenant that was suspended finds nothing cached from before",
    "purged": "After a purge nothing that was cached before is hit",
}
ADVICE = {
    "unreachable": "Derive the hash of every block from the tenant's current salt.",
    "grace": "Keep the old generation valid in engines until its grace has ended.",
    "cut": "Abort requests of a generation as soon as an engine hears that it is revoked.",
    "suspended": "Unhash a tenant's blocks when it loses its generations.",
    "purged": "Unhash every block of the tenant, also those in use.",
}


class Reach:
    """One tenant's cache, and what reaches it."""

    def __init__(self, audit: Audit, operator: Operator, probe: Prober, tenant: Tenant) -> None:
        self._audit, self._operator, self._tenant = audit, operator, tenant
        self._probe, self._client = probe, audit.client(tenant)
        self._prompts: list[str] = []

    async def checks(self) -> AsyncIterator[Check]:
        """Rotations first, then suspension, then a purge."""
        before = await self._fill()
        rate = await self._rate()
        long, ran_on = await self._across(rate * RUNS_S)
        yield self._gone("unreachable", before, await self._cached(), await self._cached())
        await long.ended(ENDS_WITHIN_S)
        if long.cut:  # which may be chance, once
            long, ran_on = await self._across(rate * RUNS_S)
            await long.ended(ENDS_WITHIN_S)
        yield await self._finished(long, ran_on)
        endless = await self._start(rate * ENDLESS_S)
        ran_on = not await endless.ended(0)
        await self._rotate(0)
        yield await self._cut(endless, ran_on)
        before = await self._fill()
        await asyncio.to_thread(self._operator.suspend, self._tenant)
        await self._let_in(False)
        await asyncio.to_thread(self._operator.resume, self._tenant)
        await self._let_in(True)
        yield self._gone("suspended", before, await self._cached(), await self._cached())
        yield await self._purged()

    async def _fill(self) -> int:
        """New prompts, sent twice; the tokens that were found cached of them."""
        self._prompts = [self._audit.words(WORDS) for _ in range(PROMPTS)]
        await self._cached()
        return await self._cached()

    async def _cached(self) -> int:
        """Cached tokens of all prompts.

        Raises:
            AuditError: the server does not say what was cached.
        """
        answers = [await self._probe(self._client, prompt) for prompt in self._prompts]
        if any(answer.cached_tokens is None for answer in answers):
            raise AuditError("the server does not report cached tokens")
        return sum(answer.cached_tokens or 0 for answer in answers)

    def _gone(self, name: str, before: int, after: int, again: int) -> Check:
        return Check(
            f"rotation/{name}",
            "G9",
            judge(after > 0, before > 0 and again > 0),
            CLAIMS[name],
            f"Of {PROMPTS} prompts {after} tokens were found cached afterwards.",
            {"cached_before": before, "cached_after": after, "cached_again": again},
            f"{before} tokens before, and {again} when they were sent once more.",
            advice=ADVICE[name],
        )

    async def _rate(self) -> float:
        """Tokens a second that the server generates for one request."""
        path, prompt = self._probe.request(self._audit.words(8))
        fields = {**prompt, "max_tokens": RATE_TOKENS, "ignore_eos": True, "stream": True}
        answer = await self._client.ask(path, fields)
        spent = sum(answer.gaps_s)
        return len(answer.gaps_s) / spent if spent else RATE_TOKENS

    async def _start(self, tokens: float) -> Running:
        path, prompt = self._probe.request(self._audit.words(8))
        many = min(MOST_TOKENS, max(RATE_TOKENS, round(tokens)))
        fields = {**prompt, "max_tokens": many, "min_tokens": many, "ignore_eos": True}
        running = Running(self._client.opened(path, fields))
        await running.began(STARTS_WITHIN_S)
        return running

    async def _across(self, tokens: float) -> tuple[Running, bool]:
        """A request begun before a rotation with grace, and whether it still ran after that."""
        running = await self._start(tokens)
        await self._rotate(GRACE_S)
        return running, not await running.ended(0)

    async def _rotate(self, grace_s: float) -> None:
        await asyncio.to_thread(self._operator.rotate, self._tenant, grace_s)

    async def _finished(self, long: Running, ran_on: bool) -> Check:
        await long.stop()
        return Check(
            "rotation/grace",
            "G9",
            judge(long.cut, ran_on and long.finished),
            CLAIMS["grace"],
            f"It {long.end} after {long.events} tokens.",
            {"tokens": long.events},
            f"It was {'still' if ran_on else 'no longer'} running when the new salt was in force.",
            advice=ADVICE["grace"],
        )

    async def _cut(self, endless: Running, ran_on: bool) -> Check:
        began = time.monotonic()
        ended = await endless.ended(CUT_WITHIN_S)
        took = (endless.ended_at or began) - began
        await endless.stop()
        if not ended:
            said = f"It was still running {CUT_WITHIN_S:.0f} s after the rotation."
        elif endless.finished:
            said = "It had come to its own end before that could be told."
        else:
            said = (
                f"It was cut {max(0.0, took):.1f} s after the rotation, at {endless.events} tokens."
            )
        return Check(
            "rotation/cut",
            "G9",
            judge(ran_on and not ended, ran_on and not endless.finished),
            CLAIMS["cut"],
            said,
            {"ended_after_s": round(max(0.0, took), 3) if ended else None},
            f"It was {'' if ran_on else 'not '}running when the rotation began.",
            advice=ADVICE["cut"],
        )

    async def _let_in(self, wanted: bool) -> None:
        """Waits until the tenant is let in, or no longer.

        Raises:
            AuditError: that does not come, in time.
        """
        began = time.monotonic()
        while time.monotonic() - began < LIVE_WITHIN_S:
            try:
                await self._probe(self._client, self._audit.words(8))
            except Refused:
                let_in = False
            else:
                let_in = True
            if let_in == wanted:
                return
            await asyncio.sleep(0.1)  # between polls of a running system
        still = "not let in again" if wanted else "still let in"
        raise AuditError(f"{self._tenant.name} is {still}")

    async def _purged(self) -> Check:
        target = self._audit.target
        if not (target.control_secret and target.engine_url):
            return _not_tested("purged", "the engine's control secret is needed")
        before = await self._fill()
        async with EngineControl(target) as control:
            await control.purge(self._tenant)
        return self._gone("purged", before, await self._cached(), await self._cached())


def skipped(names: Sequence[str], why: str) -> list[Check]:
    """Checks that could not be made."""
    return [
        Check(f"rotation/{name}", "G9", Verdict.INCONCLUSIVE, CLAIMS[name], f"Not told: {why}.")
        for name in names
    ]


def _not_tested(name: str, why: str) -> Check:
    return Check(f"rotation/{name}", "G9", Verdict.NOT_TESTED, CLAIMS[name], f"Not run: {why}.")
