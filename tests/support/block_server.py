"""An OpenAI-compatible server without a model, on a pool of blocks with reserves."""

import asyncio
import json
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from saltwall_security.target import Target, Tenant

BLOCK = 32
CONTROL = "control-secret"

Key = tuple[str, str, int]
"""Of a cached block: its owner, the scope, and the hash of all tokens up to its end."""


@dataclass
class Account:
    """One tenant's blocks; `idle` ones are in the pool's LRU list as well."""

    reserve: int = 0
    ceiling: float = math.inf
    pinned: int = 0
    idle: int = 0
    requests: int = 0
    generation: int = 0

    @property
    def held(self) -> int:
        return self.pinned + self.idle


@dataclass
class BlockPool:
    """Blocks under one LRU; tenants keep their reserves if `keeps` says so."""

    total: int
    keeps: bool
    accounts: dict[str, Account] = field(default_factory=dict)
    lru: OrderedDict[Key, None] = field(default_factory=OrderedDict)
    pins: dict[Key, int] = field(default_factory=dict)

    @property
    def free(self) -> int:
        return self.total - sum(account.held for account in self.accounts.values())

    def account(self, owner: str) -> Account:
        return self.accounts.setdefault(owner, Account())

    def pin(self, owner: str, keys: list[Key], more: int) -> int | None:
        """Pins blocks of these keys, and `more` that will not be cached; how many were cached.

        None: they do not fit now.
        """
        mine = self.account(owner)
        cached = 0
        while cached < len(keys) and (keys[cached] in self.lru or keys[cached] in self.pins):
            cached += 1
        hits = sum(key in self.lru for key in keys[:cached])
        new = len(keys) - cached + more
        if mine.pinned + hits + new > mine.ceiling or new > self._available(owner) - hits:
            return None
        for key in keys[:cached]:
            self._pin(key)
        for _ in range(new):
            self._take(owner)
            mine.pinned += 1
        for key in keys[cached:]:
            self.pins[key] = self.pins.get(key, 0) + 1
        return cached

    def unpin(self, owner: str, keys: list[Key], more: int) -> None:
        """What is cached becomes idle, its end first; the rest is free."""
        mine = self.account(owner)
        mine.pinned -= more
        for key in reversed(keys):
            self.pins[key] -= 1
            if self.pins[key]:
                continue
            del self.pins[key]
            mine.pinned -= 1
            if key in self.lru:  # two requests have computed the same
                continue
            mine.idle += 1
            self.lru[key] = None

    def drop(self, owner: str) -> None:
        """Forgets what is idle of a tenant."""
        for key in [key for key in self.lru if key[0] == owner]:
            self._evict(key)

    def _pin(self, key: Key) -> None:
        if key in self.lru:
            self._evict(key)
            self.account(key[0]).pinned += 1
        self.pins[key] = self.pins.get(key, 0) + 1

    def _evict(self, key: Key) -> None:
        del self.lru[key]
        self.account(key[0]).idle -= 1

    def _take(self, owner: str) -> None:
        mine = self.account(owner)
        if mine.held < mine.ceiling and self.free > 0:
            return
        at_ceiling = mine.held >= mine.ceiling
        self._evict(
            next(
                key
                for key in self.lru
                if (key[0] == owner if at_ceiling else self._may_take(owner, key[0]))
            )
        )

    def _may_take(self, taker: str, owner: str) -> bool:
        account = self.account(owner)
        if taker == owner:
            return not self.keeps or account.held >= account.reserve
        return not self.keeps or account.held > account.reserve

    def _available(self, owner: str) -> int:
        if not self.keeps:
            return self.free + len(self.lru)
        mine = self.account(owner)
        others = [account for name, account in self.accounts.items() if name != owner]
        borrowed = sum(min(other.idle, max(0, other.held - other.reserve)) for other in others)
        promised = sum(max(0, other.reserve - other.held) for other in others)
        return self.free + mine.idle + borrowed - promised


@dataclass
class BlockServer:
    """One engine behind HTTP: a word is a token.

    Args:
        keys: tenants by key; None: everybody is let in, and all are one.
        listed: models are listed to everybody.
        keeps: reserves are kept.
        tells: metrics say how large the pool is, as vLLM's do.
        shown: usage says how many tokens were cached.
        fair: a request computes little at a time; else a prompt at once, first come first served.
        token_s: what a token costs.
        replicas: so many its operator says that there are.
    """

    blocks: int = 128
    keys: dict[str, str] | None = None
    listed: bool = False
    keeps: bool = True
    tells: bool = True
    shown: bool = True
    fair: bool = True
    token_s: float = 2e-6
    replicas: int = 1
    origin: str = ""
    pool: BlockPool = field(init=False)
    every_key: list[str] = field(default_factory=list)
    _engine: asyncio.Lock = field(default_factory=asyncio.Lock)
    _freed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        self.pool = BlockPool(self.blocks, self.keeps)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["BlockServer"]:
        """Serves on a port of its own."""
        routes = [
            Route("/v1/models", self._models),
            Route("/v1/completions", self._generate, methods=["POST"]),
            Route("/saltwall/v1/usage", self._usage),
            Route("/saltwall/v1/tenants/{tenant}/purge", self._purge, methods=["POST"]),
            Route("/metrics", self._metrics),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes), host="127.0.0.1", port=0, log_level="error", lifespan="off"
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        try:
            while not server.started:  # noqa: ASYNC110  # uvicorn has no event for it
                await asyncio.sleep(0.001)
            self.origin = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
            yield self
        finally:
            server.should_exit = True
            await serving

    def target(self, operated: bool = False, told: bool = True) -> Target:
        """It as the auditor is given it: with an operator, and with the control secret, or not."""
        known = Tenant("one", "key-one", id="one"), Tenant("two", "key-two", id="two")
        anonymous = Tenant("one"), Tenant("two")
        return Target(
            f"{self.origin}/v1",
            anonymous if self.keys is None else known,
            model="words",
            engine_url=self.origin if told else None,
            control_secret=CONTROL if told else None,
            operator=BlockOperator(self) if operated else None,
        )

    def tenants(self) -> set[str]:
        """All that there are."""
        return set((self.keys or {}).values())

    def _owner(self, request: Request) -> str | None:
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        return "" if self.keys is None else self.keys.get(key)

    async def _models(self, request: Request) -> Response:
        if self._owner(request) is None and not self.listed:
            return JSONResponse({"error": {"message": "who are you?"}}, status_code=401)
        return JSONResponse({"data": [{"id": "words"}]})

    async def _usage(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {CONTROL}":
            return JSONResponse({}, status_code=403)
        return JSONResponse(
            {
                "capacity": {"blocks": self.blocks, "block_tokens": BLOCK},
                "blocks": {
                    "total": self.blocks,
                    "free": self.pool.free,
                    "idle": sum(each.idle for each in self.pool.accounts.values()),
                },
                "tenants": {n.replace("-", ""): self._row(n, a) for n, a in self._accounts()},
            }
            | self._more()
        )

    def _accounts(self) -> list[tuple[str, Account]]:
        return list(self.pool.accounts.items())

    def _row(self, name: str, account: Account) -> dict[str, Any]:
        return {"pinned": account.pinned, "running": account.requests, "waiting": 0}

    def _more(self) -> dict[str, Any]:
        return {}

    async def _purge(self, request: Request) -> Response:
        for name in self.pool.accounts:
            if name.replace("-", "") == request.path_params["tenant"]:
                self.pool.drop(name)
        return JSONResponse({})

    async def _metrics(self, request: Request) -> Response:
        labels = f'block_size="{BLOCK}",num_gpu_blocks="{self.blocks + 1}"'
        return Response(f"vllm:cache_config_info{{{labels}}} 1.0\n" if self.tells else "")

    async def _generate(self, request: Request) -> Response:
        owner = self._owner(request)
        try:
            body = json.loads(await request.body())
        except ClientDisconnect:
            return Response()
        if owner is None:
            return JSONResponse({"error": {"message": "who are you?"}}, status_code=401)
        return StreamingResponse(self._stream(owner, body))

    async def _stream(self, owner: str, body: dict[str, Any]) -> AsyncIterator[str]:
        words, account = body["prompt"].split(), self.pool.account(owner)
        scope = f"{account.generation} {body.get('cache_salt')}"
        keys = [
            (owner, scope, hash(tuple(words[:end]))) for end in range(BLOCK, len(words) + 1, BLOCK)
        ]
        more = math.ceil((len(words) + body["max_tokens"]) / BLOCK) - len(keys)
        account.requests += 1
        try:
            cached = await self._pinned(owner, keys, more)
            try:
                cached = min(cached * BLOCK, (len(words) - 1) // BLOCK * BLOCK)
                await self._compute(len(words) - cached)
                for _ in range(body["max_tokens"]):
                    await self._compute(1)
                    yield f"data: {json.dumps({'choices': [{'text': 'x'}]})}\n\n"
            finally:
                self.pool.unpin(owner, keys, more)
                if account.generation != int(scope.split()[0]):
                    self.pool.drop(owner)
                async with self._freed:
                    self._freed.notify_all()
        finally:
            account.requests -= 1
        usage: dict[str, Any] = {"prompt_tokens": len(words)}
        if self.shown:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n"

    async def _pinned(self, owner: str, keys: list[Key], more: int) -> int:
        async with self._freed:
            while (cached := self.pool.pin(owner, keys, more)) is None:
                await self._freed.wait()
            return cached

    async def _compute(self, tokens: int) -> None:
        while tokens > 0:
            part = min(tokens, 256) if self.fair else tokens
            async with self._engine:
                await asyncio.sleep(part * self.token_s)
            tokens -= part


@dataclass
class BlockOperator:
    """Whoever operates a `BlockServer`; amounts are in tokens, as in "96t"."""

    server: BlockServer

    def create_tenant(self, name: str) -> Tenant:
        key = self._new_key(name)
        return Tenant(name, key, id=name.replace("-", ""))

    def delete_tenant(self, tenant: Tenant) -> None:
        self.clear_quota(tenant)
        for key in [key for key, name in self._keys.items() if name == tenant.name]:
            del self._keys[key]

    def create_key(self, tenant: Tenant, expires_s: float | None = None) -> tuple[str, str]:
        key = self._new_key(tenant.name)
        return key[:8], key

    def revoke_key(self, public_id: str) -> None:
        for key in [key for key in self._keys if key.startswith(public_id)]:
            del self._keys[key]

    suspend = resume = delete_tenant

    def rotate(self, tenant: Tenant, grace_s: float | None = None) -> None:
        self.server.pool.account(tenant.name).generation += 1
        self.server.pool.drop(tenant.name)

    def set_quota(self, tenant: Tenant, **options: str | bool) -> None:
        account = self.server.pool.account(tenant.name)
        if "reserve" in options:
            account.reserve = int(str(options["reserve"]).removesuffix("t")) // BLOCK
        if options.get("strict"):
            account.ceiling = account.reserve

    def oversell(self, tenant: Tenant, blocks: int) -> None:
        raise NotImplementedError

    def replicas(self) -> int:
        return self.server.replicas

    def clear_quota(self, tenant: Tenant) -> None:
        account = self.server.pool.account(tenant.name)
        account.reserve, account.ceiling = 0, math.inf

    def enforced_quotas(self) -> Mapping[str, Mapping[str, float]]:
        return {
            name: {"reserve": self.server.pool.account(name).reserve, "weight": 1.0}
            for name in self._keys.values()
        }

    def _new_key(self, tenant: str) -> str:
        key = uuid4().hex
        self._keys[key] = tenant
        self.server.every_key.append(key)
        return key

    @property
    def _keys(self) -> dict[str, str]:
        assert self.server.keys is not None
        return self.server.keys
