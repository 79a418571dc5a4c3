"""How long a revoked key, or a suspended tenant's, goes on working; and its running stream."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import httpx

from saltwall_security.check import Check, Plot, Verdict
from saltwall_security.client import COMPLETIONS, MODELS, Client
from saltwall_security.ending import (
    CONTRACT_S,
    FAILS_S,
    OK,
    POLL_S,
    Ending,
    ending,
    is_slow,
    judged,
    started,
)
from saltwall_security.running import Running
from saltwall_security.suite import Audit
from saltwall_security.target import Operator, Tenant

FRESH = {"connection": "close"}
"""Each request has a connection of its own, and with it any worker."""


async def stop(audit: Audit, tenant: Tenant, act: Callable[[], None]) -> Ending:
    """Runs a stream with the tenant's key, acts, and watches both the stream and new requests."""
    client = Client(audit.target, tenant)
    prompt = {"prompt": audit.words(5)}

    async def begin(tokens: int) -> Running:
        return Running(
            client.opened(COMPLETIONS, {**prompt, "max_tokens": tokens, "ignore_eos": True})
        )

    async def ask(refusals: int) -> int:
        try:
            if refusals % 2:  # every other one, but none that is sure to be served
                return (await client.ask(COMPLETIONS, {**prompt, "max_tokens": 1}, FRESH)).status
            return (await client.send("GET", MODELS, headers=FRESH)).status
        except httpx.HTTPError:
            return 0

    running = await started(begin)
    try:
        return await ending(running, act, ask)
    finally:
        await running.stop()
        await client.close()


async def revoke(audit: Audit, operator: Operator, tenant: Tenant) -> tuple[Ending, str]:
    """A further key of the tenant, revoked; the key comes with it."""
    public_id, key = await asyncio.to_thread(operator.create_key, tenant)
    one = replace(tenant, key=key)
    return await stop(audit, one, lambda: operator.revoke_key(public_id)), key


async def suspend(audit: Audit, operator: Operator, tenant: Tenant) -> tuple[Ending, bool]:
    """The tenant suspended and resumed; and whether its key worked again."""
    stopped = await stop(audit, tenant, lambda: operator.suspend(tenant))
    await asyncio.to_thread(operator.resume, tenant)
    client, since = Client(audit.target, tenant), time.monotonic()
    try:
        while time.monotonic() - since < FAILS_S:
            if (await client.send("GET", MODELS)).status == OK:
                return stopped, True
            await asyncio.sleep(POLL_S)  # between polls of a running system
    finally:
        await client.close()
    return stopped, False


def check_stops(name: str, claim: str, stops: Sequence[Ending], control: tuple[bool, str]) -> Check:
    """A check over several acts of one kind."""
    refused = [each.refused_s for each in stops]
    ended = [each.ended_s for each in stops if each.ran]
    verdict = judged(stops, control[0])
    return Check(
        f"keys/{name}",
        "G7",
        verdict,
        claim,
        f"{len(stops)} times: all new requests were refused {_span(refused)} after the command "
        f"had returned, the running stream ended after {_span(ended)}, both within "
        f"{_span([each.whole_s for each in stops])} of its beginning; {CONTRACT_S:.0f} s is "
        f"promised, {FAILS_S:.0f} s fails"
        f"{'; this is slower than promised' if is_slow(stops) else ''}.",
        {
            "times": len(stops),
            "streams": len(ended),
            "refused_after_max_s": _most(refused),
            "stream_ended_after_max_s": _most(ended),
            "both_since_command_began_max_s": _most([each.whole_s for each in stops]),
        },
        control[1],
        plots=[
            Plot(
                f"Delay of {name}",
                "distribution",
                {
                    "new requests refused": [each for each in refused if each is not None],
                    "running stream ended": [each for each in ended if each is not None],
                },
                ("after the command had returned (s)", "times"),
            )
        ]
        if len(stops) > 1
        else (),
        advice="Cut running requests on every change of keys and tenants, and keep no answer about "
        "a key for longer than a second."
        if verdict is Verdict.FAILED
        else "",
    )


def _span(values: Sequence[float | None]) -> str:
    if not values:
        return "an unknown time"
    if None in values:
        return f"more than {FAILS_S:.0f} s"
    known = [value for value in values if value is not None]
    low, high = min(known), max(known)
    return f"{low:.2f} s" if len(known) == 1 else f"{low:.2f} to {high:.2f} s"


def _most(values: Sequence[float | None]) -> float | None:
    return (
        None if not values or None in values else round(max(v for v in values if v is not None), 3)
    )
