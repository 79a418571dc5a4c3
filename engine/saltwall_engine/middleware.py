"""The outermost ASGI middleware of vLLM's API server: who may reach which route.

Default deny. A data route needs a seal before its body is read, and a genuine ticket before its
body is parsed; a control route needs the control secret; every other route does not exist.
"""

import hashlib
import hmac
import json
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from saltwall_engine.api_state import ApiState
from saltwall_tenants.wire import SEAL_HEADER, Refusal, WireError, check_seal, open_ticket
from saltwall_tenants.wire.seal import SEAL_CHARS, read_ticket

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

DATA_ROUTES = frozenset(
    {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/messages",
        "/v1/responses",
    }
)
CONTROL_ROUTES = frozenset({"/v1/models", "/metrics", "/metrics/", "/version", "/load", "/docs"})
CONTROL_PREFIX = "/saltwall/v1/"
HEALTH = "/health"

PASSED_HEADERS = frozenset({b"accept", b"content-length", b"content-type", b"host"})
"""What vLLM gets to see of a data request's headers: none of them steers routing or identity."""

BODY_LIMIT_VARIABLE = "SALTWALL_ENGINE_MAX_BODY_BYTES"
DEFAULT_BODY_LIMIT = 32_000_000

_NOT_READY = frozenset({Refusal.NO_POLICY, Refusal.LEASE_EXPIRED, Refusal.NOT_READY})


class Refused(Exception):
    """A request that goes no further, and its whole answer."""

    def __init__(self, status: int, message: str, code: str, refusal: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.refusal = refusal
        kind = "server_error" if status >= 500 else "invalid_request_error"
        self.body = json.dumps(
            {"error": {"message": message, "type": kind, "param": None, "code": code}}
        ).encode()


class Gate:
    """Stands before everything that vLLM's API server serves."""

    def __init__(self, app: App, state: ApiState) -> None:
        self._app = app
        self._state = state
        self._body_limit = int(os.environ.get(BODY_LIMIT_VARIABLE, DEFAULT_BODY_LIMIT))

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Passes on what is allowed and answers the rest."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        try:
            if scope["type"] != "http":
                raise _not_found()
            receive = await self._admit(scope, receive)
        except Refused as refused:
            await _answer(scope, refused, send)
            return
        await self._app(scope, receive, send)

    async def _admit(self, scope: Message, receive: Receive) -> Receive:
        path, method = scope["path"], scope["method"]
        if scope.get("root_path"):
            raise _not_found()
        if path in DATA_ROUTES:
            if method != "POST":
                raise Refused(405, f"{path} takes POST only", "method_not_allowed")
            return await self._admit_data(scope, receive)
        if path in CONTROL_ROUTES or path.startswith(CONTROL_PREFIX):
            self._check_control(scope)
        elif path == HEALTH and method in ("GET", "HEAD"):
            self._check_ready()
        else:
            raise _not_found()
        return receive

    async def _admit_data(self, scope: Message, receive: Receive) -> Receive:
        self._check_ready()
        seal = _only_header(scope, SEAL_HEADER.encode())
        if seal is None or len(seal) != SEAL_CHARS:
            raise _forbidden(WireError(Refusal.SEAL, "one seal header is required"))
        if scope.get("query_string"):
            raise _forbidden(WireError(Refusal.SEAL, "a query string is not sealed"))
        body = await self._read(scope, receive)
        try:
            ticket = read_ticket(body)
            keys = self._state.keys
            key_id, opened = open_ticket(ticket, keys.tickets, keys.name)
            digest = hashlib.sha256(body).digest()
            check_seal(keys.seals[key_id], seal, ticket, scope["method"], scope["path"], digest)
            self._state.authorisation.check(opened.tenant, opened.generation)
        except WireError as error:
            raise _forbidden(error) from None
        scope["headers"] = [h for h in scope["headers"] if h[0].lower() in PASSED_HEADERS]
        return _replay(body, receive)

    def _check_ready(self) -> None:
        try:
            self._state.check_ready()
        except WireError as error:
            raise Refused(503, f"not ready: {error}", "not_ready", error.refusal.value) from None

    def _check_control(self, scope: Message) -> None:
        given = _only_header(scope, b"authorization") or ""
        expected = f"Bearer {self._state.keys.control}"
        if not hmac.compare_digest(given.encode(), expected.encode()):
            raise Refused(401, "this route needs the engine's control secret", "unauthorized")

    async def _read(self, scope: Message, receive: Receive) -> bytes:
        length = _only_header(scope, b"content-length")
        if length is not None and (not length.isdecimal() or int(length) > self._body_limit):
            raise _too_large(self._body_limit)
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise Refused(400, "the client went away", "disconnected")
            body += message.get("body", b"")
            if len(body) > self._body_limit:
                raise _too_large(self._body_limit)
            if not message.get("more_body", False):
                return bytes(body)


def _only_header(scope: Message, name: bytes) -> str | None:
    values = [value for key, value in scope["headers"] if key.lower() == name]
    return values[0].decode("latin-1") if len(values) == 1 else None


def _replay(body: bytes, receive: Receive) -> Receive:
    """Hands the body over once, then whatever the connection says: disconnects must get through."""
    pending = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


def _not_found() -> Refused:
    return Refused(404, "no such route", "not_found")


def _too_large(limit: int) -> Refused:
    return Refused(413, f"the body is over {limit} bytes", "request_too_large")


def _forbidden(error: WireError) -> Refused:
    if error.refusal in _NOT_READY:
        return Refused(503, f"not ready: {error}", "not_ready", error.refusal.value)
    return Refused(403, f"refused: {error}", "refused", error.refusal.value)


async def _answer(scope: Message, refused: Refused, send: Send) -> None:
    kind = scope["type"]
    if kind == "websocket":
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008})
            return
        kind = "websocket.http"
    headers = [(b"content-type", b"application/json")]
    headers.append((b"content-length", str(len(refused.body)).encode()))
    if refused.refusal:
        headers.append((b"x-saltwall-refusal", refused.refusal.encode()))
    if refused.status == 503:
        headers.append((b"retry-after", b"1"))
    await send({"type": f"{kind}.response.start", "status": refused.status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": refused.body})
