"""A platform without a model, for attacks on its doors: its gateway seals, its engine checks.

It speaks the real ticket and seal. Defects are switched on by name, one branch each.
"""

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, DispatchFunction
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from saltwall_security.target import Target, Tenant
from saltwall_tenants.wire import (
    SEAL_HEADER,
    EngineKeys,
    Refusal,
    Ticket,
    TicketRoot,
    WireError,
    derive_kv_salt,
    embed_ticket,
    make_seal,
    make_ticket,
    open_ticket,
)
from saltwall_tenants.wire.seal import read_ticket

MODEL = "demo"
TOKEN_S = 0.004
MOST_BYTES = 1_000_000
COMPLETIONS = "/v1/completions"
UNAUTHORIZED = {"error": {"message": "This key is not valid.", "code": "invalid_api_key"}}


@dataclass
class Account:
    """A tenant; its keys are the platform's to know."""

    id: UUID = field(default_factory=uuid4)
    generation: int = 1
    status: str = "active"
    models: tuple[str, ...] = (MODEL,)


@dataclass
class Key:
    """A key, and until when it is good (`time.monotonic()`)."""

    tenant: str
    until: float = float("inf")
    revoked: bool = False


class Refused(Exception):
    """An answer that is not a success."""

    def __init__(self, status: int, document: object) -> None:
        self.status, self.document = status, document


@dataclass
class Platform:
    """Gateway and engine, each on a port of its own.

    Args:
        defects: what is wrong with it, by name.
    """

    defects: frozenset[str] = frozenset()
    tenants: dict[str, Account] = field(default_factory=dict)
    keys: dict[str, Key] = field(default_factory=dict)
    url: str = ""
    engine_url: str = ""
    behind: str = ""
    """Where the gateway sends requests: the engine, unless somebody listens in between."""
    engine_keys: EngineKeys = field(
        default_factory=lambda: TicketRoot(b"r" * 32).engine_keys(MODEL), repr=False
    )
    seen: set[tuple[bytes, str]] = field(default_factory=set)
    stored: dict[str, str] = field(default_factory=dict)
    running: dict[str, asyncio.Event] = field(default_factory=dict)
    active: int = 0
    number: int = 0
    """Counts what a defect counts."""
    front: DispatchFunction | None = None
    """What stands before the gateway."""

    def __post_init__(self) -> None:
        for name in ("acme", "globex"):
            self.tenants[name] = Account()
            self.keys[f"key-of-{name}-0123456789"] = Key(name)
        if "a model shows that it is hidden" in self.defects:
            self.tenants["acme"].models = (MODEL, "secret")

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Platform"]:
        """Serves both ports until the end of the block."""
        gateway = [
            Route("/v1/models", self._models),
            Route("/v1/models/{model}", self._models),
            Route("/v1/responses", self._responses, methods=["POST"]),
            Route("/v1/responses/{id}", self._response, methods=["GET", "DELETE"]),
            Route("/v1/responses/{id}/cancel", self._cancel, methods=["POST"]),
            Route("/v1/chat/completions", self._gateway, methods=["POST"]),
            Route(COMPLETIONS, self._gateway, methods=["POST"]),
        ]
        engine = [
            Route("/health", self._health),
            Route("/saltwall/v1/usage", self._control),
            Route("/v1/chat/completions", self._engine, methods=["POST"]),
            Route(COMPLETIONS, self._engine, methods=["POST"]),
        ]
        if "there is no engine" in self.defects:
            engine = [Route("/health", self._health)]
        if "a route is open" in self.defects:
            gateway.append(Route("/invocations", self._health, methods=["POST"]))
        if "metrics are open" in self.defects:
            gateway.append(Route("/metrics", self._health))
            engine.append(Route("/metrics", self._health))
        async with AsyncExitStack() as stack:
            self.url = f"{await stack.enter_async_context(_listening(gateway, self.front))}/v1"
            self.engine_url = self.behind = await stack.enter_async_context(_listening(engine))
            yield self

    def target(self, operated: bool = False) -> Target:
        """It as the auditor is given it."""
        tenants = [
            Tenant(key.tenant, secret, id=str(self.tenants[key.tenant].id))
            for secret, key in list(self.keys.items())[:2]
        ]
        return Target(
            self.url,
            tenants,
            model=MODEL,
            engine_url=self.engine_url,
            control_secret=self.engine_keys.control,
            operator=PretendOperator(self) if operated else None,
        )

    # The gateway

    async def _models(self, request: Request) -> Response:
        try:
            tenant = await self._caller(request)
        except Refused as refused:
            return JSONResponse(refused.document, refused.status)
        models, asked = self.tenants[tenant].models, request.path_params.get("model")
        if asked is not None and asked not in models:
            hidden = "a model shows that it is hidden" in self.defects and asked == "secret"
            return JSONResponse({"error": {"message": "no"}}, 403 if hidden else 404)
        return JSONResponse({"data": [{"id": model} for model in models]})

    async def _caller(self, request: Request) -> str:
        values = request.headers.getlist("authorization")
        secret = values[0].removeprefix("Bearer ") if values else ""
        if not values and "a cookie opens" in self.defects and request.headers.get("cookie"):
            return "acme"
        key = self.keys.get(secret)
        if "keys are compared on a prefix" in self.defects:
            key = next((k for s, k in self.keys.items() if s[:12] == secret[:12]), None)
        if "a near key takes longer" in self.defects and key is None:
            near = any(secret[:12] == known[:12] for known in self.keys)
            await asyncio.sleep(0.004 if near else 0)
        if len(values) != 1 or not values[0].startswith("Bearer ") or key is None:
            raise Refused(401, UNAUTHORIZED)
        if (key.revoked and not self._unheard()) or key.until < time.monotonic():
            told = {"error": {"message": "This key was revoked."}}
            raise Refused(401, told if "revoked keys are told so" in self.defects else UNAUTHORIZED)
        if self.tenants[key.tenant].status != "active":
            raise Refused(403, {"error": {"message": "suspended"}})
        return key.tenant

    def _unheard(self) -> bool:
        """Whether the worker that answers, each in its turn, has not heard of revocations."""
        self.number += 1
        return "one worker of two has not heard of it" in self.defects and self.number % 2 == 0

    async def _gateway(self, request: Request) -> Response:
        try:
            tenant = await self._caller(request)
            document = json.loads(await request.body())
            if document["model"] not in self.tenants[tenant].models:
                raise Refused(404, {"error": {"message": "no"}})
        except Refused as refused:
            return JSONResponse(refused.document, refused.status)
        except ValueError:
            return JSONResponse({"error": {"message": "no JSON"}}, 400)
        path, account, scope = (
            request.url.path,
            self.tenants[tenant],
            document.pop("cache_salt", ""),
        )
        chosen = document.pop("request_id", None)
        passes = "request ids are passed through" in self.defects
        document["request_id"] = chosen if passes and chosen else uuid4().hex
        salt = derive_kv_salt(_secret(account), MODEL, scope or "")
        ticket = make_ticket(
            1,
            self.engine_keys.tickets[1],
            MODEL,
            Ticket(account.id, account.generation, salt, int(time.time())),
        )
        if "a client's ticket is passed on" in self.defects and str(scope).startswith("sw1."):
            ticket = scope
        body = embed_ticket(document, ticket)
        headers = {"content-type": "application/json", SEAL_HEADER: self._seal(ticket, path, body)}
        return await self._forwarded(path, body, headers, request)

    async def _forwarded(
        self, path: str, body: bytes, headers: dict[str, str], request: Request
    ) -> Response:
        if "load is passed on" in self.defects:
            headers |= {k: v for k, v in request.headers.items() if k.startswith("endpoint-load")}
        http = httpx.AsyncClient(timeout=60, trust_env=False)
        upstream = await http.send(
            http.build_request("POST", self.behind + path, content=body, headers=headers),
            stream=True,
        )
        passed = {k: v for k, v in upstream.headers.items() if k == "endpoint-load-metrics"}
        if "load is in a header" in self.defects:
            passed["x-busyness"] = str(self.active)
        if "answers are numbered once somebody streams" in self.defects:
            self.number += bool(self.number or self.active)
            passed["x-number"] = str(self.number)
        passed["content-type"] = upstream.headers.get("content-type", "application/json")

        async def parts() -> AsyncIterator[bytes]:
            try:
                caller = request.headers.get("authorization", "").removeprefix("Bearer ")
                async for part in upstream.aiter_raw():
                    yield part
                    key = self.keys[caller]
                    lost = key.revoked or self.tenants[key.tenant].status != "active"
                    if lost and "running streams go on" not in self.defects:
                        return
            finally:
                await upstream.aclose()
                await http.aclose()

        return StreamingResponse(parts(), upstream.status_code, passed)

    async def _responses(self, request: Request) -> Response:
        try:
            tenant = await self._caller(request)
        except Refused as refused:
            return JSONResponse(refused.document, refused.status)
        name = uuid4().hex
        self.stored[name] = tenant
        return JSONResponse({"id": name, "object": "response"})

    async def _response(self, request: Request) -> Response:
        tenant = await self._caller(request)
        owner = self.stored.get(request.path_params["id"])
        anybody = owner is not None and "responses are anybody's" in self.defects
        found = owner == tenant or anybody
        return JSONResponse({"id": "x"} if found else {}, 200 if found else 404)

    async def _cancel(self, request: Request) -> Response:
        await self._caller(request)
        found = self.running.get(request.path_params["id"])
        if found is None or "anybody cancels" not in self.defects:
            return JSONResponse({}, 404)
        found.set()
        return JSONResponse({}, 404)

    # The engine

    async def _health(self, request: Request) -> Response:
        return JSONResponse({})

    async def _control(self, request: Request) -> Response:
        given = request.headers.get("authorization", "")
        chars = 16 if "the secret is compared on a prefix" in self.defects else 10_000
        whole = hmac.compare_digest(
            given[:chars].encode(), f"Bearer {self.engine_keys.control}"[:chars].encode()
        )
        alone = len(request.headers.getlist("authorization")) == 1
        return JSONResponse({}, 200 if whole and alone else 401)

    async def _engine(self, request: Request) -> Response:
        if "one answer is late" in self.defects:
            self.number += 1
            await asyncio.sleep(self.number == 1)
        if SEAL_HEADER not in request.headers and "seals are for who wants" not in self.defects:
            named = {} if "it is no engine" in self.defects else {"x-saltwall-refusal": "seal"}
            return JSONResponse({"error": {"message": "no seal"}}, 403, named)
        if int(request.headers.get("content-length", 0)) > MOST_BYTES:
            return JSONResponse({"error": {"message": "too large"}}, 413)
        try:
            body = await request.body()
        except ClientDisconnect:
            return Response(status_code=400)
        if "malformed bodies are fatal" in self.defects and not body.endswith(b"}"):
            return JSONResponse({}, 500)
        try:
            opened, document = self._admitted(request, body)
        except WireError:
            return JSONResponse({"error": {"message": "refused"}}, 403)
        except ValueError:
            return JSONResponse({"error": {"message": "no JSON"}}, 400)
        headers = {}
        if "headers count that no seal covers" in self.defects:
            document = {**document, "request_id": request.headers.get("x-request-id", "")}
        asked = request.headers.get("endpoint-load-metrics-format")
        if asked and "load is passed on" in self.defects:
            headers["endpoint-load-metrics"] = "waiting=3"
        if document.get("stream"):
            events = self._stream(opened, document)
            return StreamingResponse(events, media_type="text/event-stream", headers=headers)
        prompt = str(document.get("prompt") or document.get("messages"))
        tokens = len(prompt.split())
        entry = (opened.salt, prompt)
        cached, _ = (tokens if entry in self.seen else 0), self.seen.add(entry)
        usage = {"prompt_tokens": tokens, "prompt_tokens_details": {"cached_tokens": cached}}
        name = str(document.get("request_id"))
        return JSONResponse(
            {"id": name, "choices": [{"text": "salt"}], "usage": usage}, headers=headers
        )

    def _admitted(self, request: Request, body: bytes) -> tuple[Ticket, Mapping[str, Any]]:
        if "seals are for who wants" in self.defects:
            return Ticket(UUID(int=0), 1, b"s" * 32, 0), json.loads(body)
        ticket, path = read_ticket(body), request.url.path
        ages = {"max_age_s": 10.0**9} if "tickets never age" in self.defects else {}
        opened = open_ticket(ticket, self.engine_keys.tickets, MODEL, **ages)[1]
        chars = 8 if "seals are compared on a prefix" in self.defects else 100
        seals = request.headers.getlist(SEAL_HEADER)
        if request.url.query or len(seals) != 1:
            raise WireError(Refusal.SEAL)
        if seals[0][:chars] != self._seal(ticket, path, body)[:chars]:
            raise WireError(Refusal.SEAL)
        if not self._stands(opened) and "standing is not checked" not in self.defects:
            raise WireError(Refusal.UNKNOWN_TENANT)
        return opened, json.loads(body)

    def _seal(self, ticket: str, path: str, body: bytes) -> str:
        if "seals do not cover the body" in self.defects:
            body = b""
        if "seals do not cover the path" in self.defects:
            path = ""
        return make_seal(self.engine_keys.seals[1], ticket, "POST", path, body)

    def _stands(self, ticket: Ticket) -> bool:
        return any(
            account.id == ticket.tenant
            and account.generation == ticket.generation
            and account.status == "active"
            for account in self.tenants.values()
        )

    async def _stream(self, ticket: Ticket, document: Mapping[str, Any]) -> AsyncIterator[str]:
        name = str(document.get("request_id"))
        if name in self.running and "request ids are passed through" in self.defects:
            self.running[name].set()
        over = self.running[name] = asyncio.Event()
        last = document["max_tokens"] - 1
        self.active += 1
        try:
            for number in range(last + 1):
                lost = not self._stands(ticket) and "running requests go on" not in self.defects
                if over.is_set() or lost:
                    return
                reason = "length" if number == last else None
                event = {"id": name, "choices": [{"text": "x", "finish_reason": reason}]}
                yield f"data: {json.dumps(event)}\n\n"
                await asyncio.sleep(TOKEN_S)
            yield "data: [DONE]\n\n"
        finally:
            self.active -= 1


@dataclass
class PretendOperator:
    """Acts on the platform at once; each act takes as long as it takes to say so."""

    platform: Platform

    def create_tenant(self, name: str) -> Tenant:
        account = self.platform.tenants[name] = Account()
        tenant = Tenant(name, id=str(account.id))
        return Tenant(name, self.create_key(tenant)[1], id=tenant.id)

    def delete_tenant(self, tenant: Tenant) -> None:
        self.platform.tenants[tenant.name].status = "deleted"

    def create_key(self, tenant: Tenant, expires_s: float | None = None) -> tuple[str, str]:
        secret = f"key-{uuid4().hex}"
        until = float("inf") if expires_s is None else time.monotonic()
        self.platform.keys[secret] = Key(tenant.name, until)
        return secret[:12], secret

    def revoke_key(self, public_id: str) -> None:
        for secret, key in self.platform.keys.items():
            if secret.startswith(public_id) and "revocation is forgotten" not in (
                self.platform.defects
            ):
                key.revoked = True

    def suspend(self, tenant: Tenant) -> None:
        self.platform.tenants[tenant.name].status = "suspended"

    def resume(self, tenant: Tenant) -> None:
        self.platform.tenants[tenant.name].status = "active"

    def rotate(self, tenant: Tenant, grace_s: float | None = None) -> None:
        self.platform.tenants[tenant.name].generation += 1

    def set_quota(self, tenant: Tenant, **options: str | bool) -> None:
        raise NotImplementedError

    def oversell(self, tenant: Tenant, blocks: int) -> None:
        raise NotImplementedError

    def replicas(self) -> int:
        return 1

    def clear_quota(self, tenant: Tenant) -> None:
        raise NotImplementedError

    def enforced_quotas(self) -> Mapping[str, Mapping[str, float]]:
        raise NotImplementedError


def _secret(account: Account) -> bytes:
    return account.id.bytes * 2


@asynccontextmanager
async def _listening(
    routes: list[Route], front: DispatchFunction | None = None
) -> AsyncIterator[str]:
    fronts = [Middleware(BaseHTTPMiddleware, front)] if front else []
    config = uvicorn.Config(
        Starlette(routes=routes, middleware=fronts),
        host="127.0.0.1",
        port=0,
        log_level="error",
        lifespan="off",
        ws="none",
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    try:
        while not server.started:  # noqa: ASYNC110  # uvicorn has no event for it
            await asyncio.sleep(0.001)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        server.force_exit = True
        await serving
