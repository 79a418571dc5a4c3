"""Tokens per second of the demo model, end to end: two well-behaved tenants, against stock vLLM.

Both engines run at once, with the same flags, and are given the same work in turn, so one is idle
while the other is measured. Stock is asked without a key. Saltwall is asked with sealed requests
at the engine's own port, as the gateway sends them, and then through the gateway, as tenants do.
"""

import asyncio
import json
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psutil
from flood import targets
from flood.texts import words
from paired import Outcome, Side, measure
from running_stack import Stack, running_stack

from saltwall_tenants.wire import (
    SEAL_HEADER,
    EngineKeys,
    Ticket,
    embed_ticket,
    make_seal,
    make_ticket,
)

GOAL = 0.98
PATH = "/v1/completions"
TENANTS = ("acme", "globex")
CONVERSATIONS, PREFIX, QUESTION = 4, 300, 40  # at once, of each tenant; words, words
ROUNDS, TOKENS = 10, 64
QUICK_ROUNDS, QUICK_TOKENS = 2, 8

_STEPS = re.compile(r"^vllm:iteration_tokens_total_count\{.*\} (\S+)$", re.MULTILINE)

Sent = tuple[bytes, dict[str, str]]
"""A body, and headers."""


def _fields(tenant: str, question: str, tokens: int) -> dict[str, Any]:
    return {
        "model": "demo",
        "prompt": f"{words(PREFIX, random.Random(tenant))} {question}",
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _plain(tenant: str, fields: dict[str, Any]) -> Sent:
    return json.dumps(fields).encode(), {}


def _with_key(stack: Stack) -> Callable[[str, dict[str, Any]], Sent]:
    """As a tenant sends it to the gateway."""

    def send(tenant: str, fields: dict[str, Any]) -> Sent:
        return json.dumps(fields).encode(), {"authorization": f"Bearer {stack.keys[tenant]}"}

    return send


def _sealed(stack: Stack) -> Callable[[str, dict[str, Any]], Sent]:
    """As the gateway sends it to the engine."""
    name = stack.ready["model"]
    keys = EngineKeys.read(stack.home / "keys" / f"engine-{name}.json")
    number = max(keys.tickets)
    listed = json.loads(stack.saltwall("tenant", "list", "--json").stdout)
    ids = {row["name"]: UUID(row["id"]) for row in listed}

    def send(tenant: str, fields: dict[str, Any]) -> Sent:
        salt = tenant.encode().ljust(32)
        granted = Ticket(ids[tenant], 1, salt, int(time.time()))
        ticket = make_ticket(number, keys.tickets[number], name, granted)
        body = embed_ticket(fields, ticket)
        return body, {SEAL_HEADER: make_seal(keys.seals[number], ticket, "POST", PATH, body)}

    return send


async def _tokens(client: httpx.AsyncClient, sent: Sent) -> int:
    """Streams one completion; returns how many tokens the server says it generated."""
    body, headers = sent
    generated = 0
    headers = {"content-type": "application/json"} | headers
    async with client.stream("POST", PATH, content=body, headers=headers) as response:
        if response.is_error:
            raise RuntimeError(f"{response.status_code} {(await response.aread())[:500]!r}")
        async for line in response.aiter_lines():
            if line.startswith("data: {") and (usage := json.loads(line[6:]).get("usage")):
                generated = int(usage["completion_tokens"])
    return generated


def _cpu_seconds(server: psutil.Process) -> float:
    """What a server and the processes under it have used."""
    times = [each.cpu_times() for each in (server, *server.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def _steps(metrics: httpx.Response) -> float:
    """Engine steps so far, by vLLM's own metrics."""
    return sum(map(float, _STEPS.findall(metrics.raise_for_status().text)))


@dataclass(frozen=True)
class Server:
    """An engine, and a way to it: `metrics` asks for vLLM's own."""

    url: str
    process: psutil.Process
    send: Callable[[str, dict[str, Any]], Sent]
    metrics: Callable[[], httpx.Response]


def _side(server: Server, tokens: int) -> Side:
    """Several conversations of each tenant at once, from the first word to the last."""

    async def burst() -> int:
        question = words(QUESTION, random.Random())
        requests = [
            server.send(tenant, _fields(tenant, f"{number} {question}", tokens))
            for tenant in TENANTS
            for number in range(CONVERSATIONS)
        ]
        async with httpx.AsyncClient(base_url=server.url, timeout=300, trust_env=False) as client:
            return sum(await asyncio.gather(*(_tokens(client, each) for each in requests)))

    def side() -> dict[str, float]:
        steps, used = _steps(server.metrics()), _cpu_seconds(server.process)
        began = time.perf_counter()
        generated = asyncio.run(burst())
        elapsed = time.perf_counter() - began
        used = _cpu_seconds(server.process) - used
        steps = _steps(server.metrics()) - steps
        if generated != tokens * CONVERSATIONS * len(TENANTS):
            raise AssertionError(f"{generated} tokens")
        return {"tokens": generated / elapsed, "cpu": used / generated * 1e3, "steps": steps}

    return side


def _listening_on(port: int) -> psutil.Process:
    """The child of this process that is told to listen on a port."""
    for process in psutil.Process().children(recursive=True):
        if str(port) in process.cmdline():
            return process
    raise RuntimeError(f"nothing was started on port {port}")


def outcomes(quick: bool) -> Iterator[Outcome]:
    """Generated tokens per second of wall time, and what the engine took for them."""
    rounds, tokens = (QUICK_ROUNDS, QUICK_TOKENS) if quick else (ROUNDS, TOKENS)
    with (
        tempfile.TemporaryDirectory(prefix="saltwall-bench-") as directory,
        running_stack(Path(directory), *targets.STACK_POOL) as stack,
        targets.stock(Path(directory)) as target,
    ):
        url = target.base_url.removesuffix("/v1")
        process = _listening_on(httpx.URL(url).port or 0)
        stock = _side(Server(url, process, _plain, lambda: target.engine.get("/metrics")), tokens)
        engine = psutil.Process(stack.pid("engine"))
        ways = {
            "engine port": (stack.ready["engine_url"], _sealed(stack)),
            "gateway": (stack.base_url.removesuffix("/v1"), _with_key(stack)),
        }
        for way, (url, send) in ways.items():
            server = Server(url, engine, send, lambda: stack.engine("GET", "/metrics"))
            series = measure(stock, _side(server, tokens), stock, rounds)
            goal = GOAL if way == "engine port" else None
            yield Outcome.of(
                "tokens", way, "tokens/s", series["tokens"], goal=goal, more_is_better=True
            )
            yield Outcome.of("tokens", f"{way}, engine's CPU", "ms/token", series["cpu"])
            yield Outcome.of("tokens", f"{way}, engine steps", "steps", series["steps"])
