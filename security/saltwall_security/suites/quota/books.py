"""Accounting: after a storm of requests that end in every way, nothing is left on the books."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import httpx

from saltwall_security.check import Check, judge
from saltwall_security.client import COMPLETIONS, Client
from saltwall_security.engine_control import Account, Usage
from saltwall_security.suites.quota.stage import Stage

ROUNDS = 2
STORMS = 8
"""How often it is tried to see the books in use: on a fast server a look can come too late."""
ZERO_WITHIN_S = 30.0
PAGE = 250
LONG = 400
"""Tokens of an answer that is not waited for."""


async def check_books(stage: Stage) -> Check:
    """Aborts, hang-ups, several choices and errors, of both tenants; then the counts."""
    await asyncio.to_thread(stage.operator.clear_quota, stage.tenant)
    await stage.live(0, None)
    for _ in range(STORMS):
        busiest = await _busiest(stage, asyncio.create_task(_storm(stage)))
        if busiest.pinned:
            break

    def settled(usage: Usage) -> bool:
        mine = [usage.of(tenant) for tenant in (stage.tenant, stage.other)]
        return not (_lost(usage) or any(each.pinned or each.requests for each in mine))

    usage, took = await stage.control.until(settled, ZERO_WITHIN_S)
    left = [usage.of(tenant) for tenant in (stage.tenant, stage.other)]
    pinned, requests = sum(a.pinned for a in left), sum(a.requests for a in left)
    lost = _lost(usage)
    wrong = bool(pinned or requests or lost)
    return Check(
        "quota/accounting",
        "G11",
        judge(wrong, busiest.pinned > 0 and busiest.requests > 0),
        "When all requests have ended, in whatever way, no block or request is left on the books",
        f"{pinned} blocks pinned and {requests} requests left {took:.1f} s after aborts, hang-ups, "
        f"several choices and errors; {lost} blocks of the pool unaccounted for.",
        {
            "pinned_blocks": pinned,
            "requests": requests,
            "unaccounted_blocks": lost,
            "zero_after_s": round(took, 3),
        },
        f"Meanwhile one tenant had {busiest.pinned} blocks pinned and {busiest.requests} requests.",
        advice="Give a block back by the same path by which it was charged, however its request "
        "ends.",
    )


def _lost(usage: Usage) -> int:
    """Blocks of the pool that are neither free nor idle, and that nobody is charged with."""
    if len(usage.accounts) >= PAGE:  # the counts are of several moments
        return 0
    charged = sum(account.pinned for account in usage.accounts.values())
    return usage.blocks - usage.free - usage.idle - charged


async def _busiest(stage: Stage, storm: asyncio.Task[None]) -> Account:
    """The account of a tenant when most was pinned."""
    busiest = Account()
    while not storm.done():
        now = await stage.control.usage()
        for tenant in (stage.tenant, stage.other):
            busiest = max(busiest, now.of(tenant), key=lambda account: account.pinned)
        await asyncio.wait([storm], timeout=0.02)
    await storm
    return busiest


async def _storm(stage: Stage) -> None:
    clients = [stage.audit.client(stage.tenant), stage.audit.client(stage.other)]
    await asyncio.gather(*(_round(stage, client) for client in clients for _ in range(ROUNDS)))


async def _round(stage: Stage, client: Client) -> None:
    path, prompt = stage.probe.request(stage.text(3))
    long = {**prompt, "max_tokens": LONG, "ignore_eos": True}
    two = {"n": 2, "temperature": 1.0}
    ways: list[Callable[[], Awaitable[Any]]] = [
        lambda: _hang_up(client, path, long),
        lambda: _hang_up(client, path, {**long, **two}),
        lambda: _abandon(client, path, long),
        lambda: client.ask(path, {**prompt, **two, "max_tokens": 4}),
        lambda: client.ask(path, {**prompt, "max_tokens": -1}),
        lambda: client.ask(path, {**prompt, "max_tokens": 10**6}),
        lambda: client.send("POST", COMPLETIONS, b'{"model": '),
    ]
    for way in ways:
        with suppress(httpx.HTTPError):
            await way()


async def _hang_up(client: Client, path: str, fields: dict[str, Any]) -> None:
    """Reads the first tokens of a stream, and goes."""
    async with client.opened(path, fields) as response:
        async for line in response.aiter_lines():
            if line.startswith("data:"):
                return


async def _abandon(client: Client, path: str, fields: dict[str, Any]) -> None:
    """Goes before there is anything to read."""
    asked = asyncio.ensure_future(client.ask(path, fields))
    await asyncio.wait([asked], timeout=0.05)
    asked.cancel()
    with suppress(asyncio.CancelledError):
        await asked
