"""An OpenAI-compatible server without a model, whose prefix cache leaks or does not, as told.

It really speaks HTTP, but time stands still except for what it says that computing takes: what the
auditor measures does not depend on what else the machine is doing.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from saltwall_security import client, suite
from saltwall_security.suites.timing import samples

BLOCK = 16


class Clock:
    """What the auditor's modules have for the module `time`."""

    now = 1_000.0

    def perf_counter(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@dataclass
class PrefixServer:
    """One engine behind HTTP: a word is a token, and prompts are computed one at a time.

    Args:
        shared: tenants find what others have cached.
        caches: there is a cache at all.
        shown: usage says how many tokens were cached.
        chat_only: there is no route for plain completions.
        leaking: the part of lookups in which a shared cache is looked at.
        refuses_after: requests, after which all are refused; None for never.
        refusal: what it says then.
        token_s, request_s: what a token of a prompt costs, and a request.
        foreign_s: what it costs besides that another tenant alone has cached the prompt.
        noise: the spread of these costs (sigma of a lognormal factor).
    """

    shared: bool = False
    caches: bool = True
    shown: bool = True
    chat_only: bool = False
    leaking: float = 1.0
    refuses_after: int | None = None
    refusal: str = "too many requests"
    token_s: float = 2.5e-3
    request_s: float = 0.05
    foreign_s: float = 0.0
    noise: float = 0.15
    url: str = ""
    requests: int = 0
    clock: Clock = field(default_factory=Clock)
    _rng: random.Random = field(default_factory=lambda: random.Random(1))
    _blocks: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)
    _engine: asyncio.Lock = field(default_factory=asyncio.Lock)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["PrefixServer"]:
        """Serves on a port of its own."""
        routes = [Route("/v1/chat/completions", self._generate, methods=["POST"])]
        if not self.chat_only:
            routes.append(Route("/v1/completions", self._generate, methods=["POST"]))
        config = uvicorn.Config(
            Starlette(routes=routes), host="127.0.0.1", port=0, log_level="error", lifespan="off"
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        try:
            while not server.started:  # noqa: ASYNC110  # uvicorn has nothing to wait for
                await asyncio.sleep(0.001)
            self.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1"
            with ExitStack() as stack:
                for module in (client, suite, samples):
                    stack.enter_context(patch.object(module, "time", self.clock))
                yield self
        finally:
            server.should_exit = True
            await serving

    async def _generate(self, request: Request) -> Response:
        self.requests += 1
        if self.refuses_after is not None and self.requests > self.refuses_after:
            return JSONResponse({"error": {"message": self.refusal}}, status_code=429)
        body = json.loads(await request.body())
        prompt = body["prompt"] if "prompt" in body else body["messages"][0]["content"]
        words = prompt.split()
        async with self._engine:
            await asyncio.sleep(0.001)  # clients read what was made before
            tenant = request.headers.get("authorization", "")
            self.clock.now += self.foreign_s * self._is_foreign(tenant, words)
            cached = self._look_up(tenant, words)
            self._compute(self.request_s + self.token_s * (len(words) - cached))
        usage: dict[str, Any] = {"prompt_tokens": len(words), "completion_tokens": 1}
        if self.shown:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        if not body.get("stream"):
            return JSONResponse({"choices": [{"text": "x"}], "usage": usage})
        return StreamingResponse(self._stream(body["max_tokens"], usage))

    async def _stream(self, tokens: int, usage: dict[str, Any]) -> AsyncIterator[str]:
        for number in range(tokens):
            if number:
                await asyncio.sleep(0.001)  # the client reads one token before the next is made
                async with self._engine:
                    self._compute(self.request_s / 2)
            yield f"data: {json.dumps({'choices': [{'text': 'x'}]})}\n\n"
        yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n"

    def _is_foreign(self, tenant: str, words: list[str]) -> bool:
        """Whether another tenant has sent it, and this one has not."""
        first = tuple(words[:BLOCK])
        return ("", first) in self._blocks and (tenant, first) not in self._blocks

    def _look_up(self, tenant: str, words: list[str]) -> int:
        """How many words were cached; all full blocks are from now on."""
        if not self.caches:
            return 0
        leaks = self.shared and self._rng.random() < self.leaking
        chain = [tuple(words[: end + BLOCK]) for end in range(0, len(words) - BLOCK + 1, BLOCK)]
        found = 0
        for blocks in chain:
            if (tenant, blocks) in self._blocks or (leaks and ("", blocks) in self._blocks):
                found += BLOCK
            else:
                break
        self._blocks |= {(owner, blocks) for blocks in chain for owner in (tenant, "")}
        return min(found, (len(words) - 1) // BLOCK * BLOCK)

    def _compute(self, seconds: float) -> None:
        self.clock.now += seconds * self._rng.lognormvariate(0, self.noise)
