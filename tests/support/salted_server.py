"""An OpenAI-compatible server without a model, whose prefix cache is divided as a test says."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from saltwall_security.target import Target, Tenant

BLOCK = 16
TOKENS_PER_WORD = 2
TENANTS = {"key-acme": "acme", "key-globex": "globex"}


class Refused(Exception):
    """A request that the server takes for none: 400."""


@dataclass(frozen=True)
class Asked:
    """A request for a prompt, as far as it can matter to a cache.

    Args:
        tenant: whose key it came with; empty where there are no keys.
        body: the last of members that come twice; `twice` says that there were some.
    """

    tenant: str
    route: str
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    twice: bool = False

    @property
    def salt(self) -> Any:
        """What the client wrote into `cache_salt`; None and empty are nothing."""
        return self.body.get("cache_salt") or None

    @property
    def words(self) -> Sequence[object]:
        """All messages' in a row; or a prompt's token ids, as if each were one."""
        said = self.body.get("prompt")
        said = said or " ".join(each["content"] for each in self.body["messages"])
        return said.split() if isinstance(said, str) else said


def apart(asked: Asked) -> object:
    """Whose cache it is, and which part of it, as a careful platform divides it."""
    if asked.twice:
        raise Refused
    salt = asked.body.get("cache_salt")
    if salt is not None and not isinstance(salt, str):
        raise Refused
    if salt and len(salt.encode("utf-8", "surrogatepass")) > 256:
        raise Refused
    return (asked.tenant, salt or "")


def of_the_caller(asked: Asked) -> object:
    """What stock vLLM does: whatever the caller writes."""
    if asked.salt is not None and not isinstance(asked.salt, str):
        raise Refused
    return asked.salt


@dataclass
class SaltedServer:
    """One engine behind HTTP: a word is two tokens.

    Args:
        partition: the part of the cache that a request reads and writes; requests that share it
            share their prefixes.
        keyed: it asks for keys.
        tenants: by their keys.
        shown: usage says how many tokens were cached.
        models: those that it lists, the first with adapters.
        parents: it says which are adapters.
        routes: below /v1.
        owned: a block that two tenants share is served to the first of them alone.
        forgets_at: numbers of requests before which everything is evicted.
        drops_at: of those whose answers never come; the server has heard them all the same.
    """

    partition: Callable[[Asked], object] = apart
    keyed: bool = True
    tenants: Mapping[str, str] = field(default_factory=lambda: TENANTS)
    shown: bool = True
    caches: bool = True
    models: tuple[str, ...] = ("words",)
    parents: bool = True
    routes: tuple[str, ...] = ("chat/completions", "completions")
    owned: bool = False
    forgets_at: frozenset[int] = frozenset()
    drops_at: frozenset[int] = frozenset()
    requests: int = 0
    url: str = ""
    _blocks: dict[tuple[object, tuple[object, ...]], str] = field(default_factory=dict)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["SaltedServer"]:
        """Serves on a port of its own."""
        routes = [Route(f"/v1/{path}", self._generate, methods=["POST"]) for path in self.routes]
        routes.append(Route("/v1/models", self._models))
        config = uvicorn.Config(
            Starlette(routes=routes), host="127.0.0.1", port=0, log_level="error", lifespan="off"
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        try:
            while not server.started:  # noqa: ASYNC110  # uvicorn has no event for it
                await asyncio.sleep(0.001)
            self.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1"
            yield self
        finally:
            server.should_exit = True
            await serving

    def target(self, *salts: str) -> Target:
        """It as the auditor is given it; `salts` are what its tenants write."""
        written = salts or (None,) * len(self.tenants)
        tenants = [
            Tenant(name, key if self.keyed else None, cache_salt=salt)
            for (key, name), salt in zip(self.tenants.items(), written, strict=True)
        ]
        return Target(self.url, tenants, model=self.models[0])

    async def _models(self, request: Request) -> Response:
        base, *adapters = self.models
        rows = [{"id": base, "parent": None}, *({"id": a, "parent": base} for a in adapters)]
        return JSONResponse({"data": rows if self.parents else [{"id": m} for m in self.models]})

    async def _generate(self, request: Request) -> Response:
        self.requests += 1
        if self.requests in self.forgets_at:
            self._blocks.clear()
        twice = False

        def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            nonlocal twice
            twice = twice or len(dict(pairs)) < len(pairs)
            return dict(pairs)

        body = json.loads(await request.body(), object_pairs_hook=members)
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        tenant = self.tenants.get(key, "") if self.keyed else ""
        if self.keyed and (not tenant or len(request.headers.getlist("authorization")) > 1):
            return JSONResponse({"error": {"message": "who are you?"}}, status_code=401)
        if body.get("model") not in self.models:
            return JSONResponse({"error": {"message": "no such model"}}, status_code=404)
        route = request.url.path.removeprefix("/v1/")
        asked = Asked(tenant, route, body, dict(request.headers), twice)
        try:
            cached, tokens = self._look_up(asked)
        except Refused:
            return JSONResponse({"error": {"message": "no such request"}}, status_code=400)
        if self.requests in self.drops_at:
            return Response(headers={"content-length": "9"})
        return self._answer(body, cached, tokens)

    def _look_up(self, asked: Asked) -> tuple[int, int]:
        tokens = [(word, part) for word in asked.words for part in range(TOKENS_PER_WORD)]
        partition, found, missed = self.partition(asked), 0, False
        # As in vLLM, a stream tells of its first choice, and a whole answer of its last one.
        for choice in range(int(asked.body.get("n") or 1)):
            if choice and asked.body.get("stream"):
                break
            found, missed = 0, False
            for end in range(BLOCK, len(tokens), BLOCK):
                block = (partition, tuple(tokens[:end]))
                missed = missed or block not in self._blocks
                owner = self._blocks.setdefault(block, asked.tenant)
                missed = missed or (self.owned and owner != asked.tenant)
                found += 0 if missed else BLOCK
        return (found if self.caches else 0), len(tokens)

    def _answer(self, body: Mapping[str, Any], cached: int, tokens: int) -> Response:
        usage: dict[str, Any] = {"prompt_tokens": tokens, "completion_tokens": 1}
        if self.shown:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        choices = [{"index": 0, "text": "salt"}]
        if not body.get("stream"):
            return JSONResponse({"choices": choices, "usage": usage})
        events = [json.dumps({"choices": choices}), json.dumps({"choices": [], "usage": usage})]
        text = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])
        return StreamingResponse(iter([text]), media_type="text/event-stream")
