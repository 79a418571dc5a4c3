"""How long a revoked key, or a suspended tenant's, goes on working; and its running stream."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import httpx

from saltwall_security.check import Check, Plot, Verdict, judge
from saltwall_security.client import COMPLETIONS, MODELS, Client
from saltwall_security.running import Running
from saltwall_security.suite import Audit
from saltwall_security.target import Operator, Tenant

CONTRACT_S, FAILS_S = 1.0, 5.0
"""Promised, and where the promise counts as broken: the machine may be busy."""
POLL_S = 0.02
LONG = (3500, 1500, 500)
"""Tokens to generate, as many as the model's context takes."""
OK, REFUSED = 200, (401, 403)


@dataclass(frozen=True)
class Stop:
    """What became of a key when an operator had ended it (seconds); None: it went on.

    What the act does is done somewhere between its beginning and its return, so delays after its
    return are the least that they can have been; `whole_s` is the most.

    Args:
        ran: its stream was running when it began.
        refused_s: until new requests were refused.
        ended_s: until the running stream had ended.
        whole_s: both, from the beginning of the act.
    """

    ran: bool
    refused_s: float | None
    ended_s: float | None
    whole_s: float | None


async def stop(audit: Audit, tenant: Tenant, act: Callable[[], None]) -> Stop:
    """Runs a stream with the tenant's key, acts, and watches both the stream and new requests."""
    client = Client(audit.target, tenant)
    running = await _started(audit, client)
    watch: asyncio.Task[float | None] | None = None
    try:
        ran, began = running.runs, time.monotonic()
        acting = asyncio.create_task(asyncio.to_thread(act))
        watch = asyncio.create_task(_refused(client, acting))
        await acting
        done = time.monotonic()
        refused_at = await watch
        ended_at = None
        if await running.ended(max(0.0, FAILS_S - (time.monotonic() - done))):
            ended_at = running.ended_at
        # A stream that had come to its end by itself shows nothing.
        ran = ran and not running.finished
        ends = [refused_at, ended_at] if ran else [refused_at]
        known = [each for each in ends if each is not None]
        whole = max(known) - began if len(known) == len(ends) else None
        return Stop(ran, _after(refused_at, done), _after(ended_at, done), whole)
    finally:
        if watch is not None:
            watch.cancel()
        await running.stop()
        await client.close()


async def _started(audit: Audit, client: Client) -> Running:
    for tokens in LONG:
        fields = {"prompt": audit.words(5), "max_tokens": tokens, "ignore_eos": True}
        running = Running(client.opened(COMPLETIONS, fields))
        if await running.began(30):
            break
        await running.stop()
    return running


async def _refused(client: Client, acting: asyncio.Task[None]) -> float | None:
    """When the first request was refused; None if none was, long after the act."""
    deadline = None
    while deadline is None or time.monotonic() < deadline:
        if deadline is None and acting.done():
            deadline = time.monotonic() + FAILS_S
        try:
            if (await client.send("GET", MODELS)).status in REFUSED:
                return time.monotonic()
        except httpx.HTTPError:
            pass
        await asyncio.sleep(POLL_S)  # between polls of a running system
    return None


def _after(at: float | None, done: float) -> float | None:
    return None if at is None else max(0.0, at - done)


async def revoke(audit: Audit, operator: Operator, tenant: Tenant) -> tuple[Stop, str]:
    """A further key of the tenant, revoked; the key comes with it."""
    public_id, key = await asyncio.to_thread(operator.create_key, tenant)
    one = replace(tenant, key=key)
    return await stop(audit, one, lambda: operator.revoke_key(public_id)), key


async def suspend(audit: Audit, operator: Operator, tenant: Tenant) -> tuple[Stop, bool]:
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


def check_stops(name: str, claim: str, stops: Sequence[Stop], control: tuple[bool, str]) -> Check:
    """A check over several acts of one kind."""
    refused = [each.refused_s for each in stops]
    ended = [each.ended_s for each in stops if each.ran]
    late = [each for each in (*refused, *ended) if each is None or each > FAILS_S]
    verdict = judge(bool(late), bool(ended) and len(ended) == len(stops) and control[0])
    slowest = max((each for each in (*refused, *ended) if each is not None), default=None)
    slow = slowest is not None and slowest > CONTRACT_S and not late
    return Check(
        f"keys/{name}",
        "G7",
        verdict,
        claim,
        f"{len(stops)} times: new requests were refused {_span(refused)} after the command had "
        f"returned, the running stream ended after {_span(ended)}, both within "
        f"{_span([each.whole_s for each in stops])} of its beginning; {CONTRACT_S:.0f} s is "
        f"promised, {FAILS_S:.0f} s fails"
        f"{'; this is slower than promised' if slow else ''}.",
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
