"""The tenants' side of the gateway as an ASGI application: exact routes, and one end for each."""

import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import structlog
from opentelemetry.trace import Span
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from saltwall_platform import errors
from saltwall_platform.errors import ApiError, ClientGone
from saltwall_platform.exchange import CLIENT_GONE, Exchange
from saltwall_platform.generate import Generate
from saltwall_platform.ledger import Ledger
from saltwall_platform.metrics import Metrics
from saltwall_platform.model_list import ModelList
from saltwall_platform.reply import Reply
from saltwall_platform.tracing import Tracing, mark_failed

Handler = Callable[[Exchange], Awaitable[None]]
MODELS = "/v1/models"
GENERATION = ("/v1/chat/completions", "/v1/completions")
ELSEWHERE = "other"

log = structlog.get_logger("saltwall_platform.access")


@dataclass(frozen=True)
class Front:
    """Routes by the exact path that came over the wire.

    No framework routes here: nothing may redirect, join slashes, decode `%2F`, or build a URL from
    the Host header before it is decided who may do what.
    """

    generate: Generate
    models: ModelList
    ledger: Ledger
    metrics: Metrics
    tracing: Tracing
    patience_s: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one HTTP request."""
        if scope["type"] != "http":
            return  # the server is told to have neither lifespan nor websockets
        request_id = uuid.uuid4().hex
        route, method, handler = self._route(scope)
        exchange = Exchange(
            request_id=request_id,
            method=scope["method"],
            route=route,
            headers=Headers(scope=scope),
            receive=receive,
            reply=Reply(send, request_id, self.patience_s),
        )
        running = self.metrics.running.labels(route)
        label = exchange.method if exchange.method in {"GET", "POST"} else "OTHER"
        with (
            running.track_inprogress(),
            self.tracing.request(label, route, request_id) as span,
            structlog.contextvars.bound_contextvars(request_id=request_id),
        ):
            try:
                if handler is None:
                    raise errors.not_found()
                if scope["method"] != method:
                    raise errors.method_not_allowed(method)
                await self._answer(handler, exchange)
            except ApiError as error:
                await self._fail(exchange, error)
            except ClientGone:
                exchange.outcome = CLIENT_GONE
            finally:
                self._write_down(exchange, span)

    def _route(self, scope: Scope) -> tuple[str, str, Handler | None]:
        path: str = scope["path"]
        exact = scope.get("raw_path", b"") == path.encode("ascii", "replace")
        if exact and path in GENERATION:
            return path, "POST", self.generate
        if exact and path == MODELS:
            return path, "GET", self.models.all
        prefix = f"{MODELS}/"
        # A model's name may hold a slash, and clients encode it: only the prefix must be literal.
        if path.startswith(prefix) and scope.get("raw_path", b"").startswith(prefix.encode()):
            model = path.removeprefix(prefix)
            return f"{prefix}{{id}}", "GET", partial(self.models.one, model=model)
        return ELSEWHERE, "", None

    async def _answer(self, handler: Handler, exchange: Exchange) -> None:
        try:
            await handler(exchange)
        except (ApiError, ClientGone):
            raise
        except Exception:
            log.exception("request failed")
            raise errors.internal() from None

    async def _fail(self, exchange: Exchange, error: ApiError) -> None:
        exchange.outcome = error.status
        with suppress(ClientGone):
            await exchange.reply.error(error)

    def _write_down(self, exchange: Exchange, span: Span) -> None:
        status, duration = exchange.status, exchange.age_s
        principal = exchange.caller.principal if exchange.caller else None
        usage = exchange.meter.total()
        self.metrics.answered(exchange.route, status, duration)
        if principal is not None:
            self.ledger.used(principal.key_id, exchange.started_at)
        record = exchange.usage_record()
        if record is not None:
            self.ledger.settle(record)
            self.metrics.settled(exchange.model, usage)
        facts = {
            "tenant": principal.tenant_name if principal else None,
            "key": principal.key_id if principal else None,
            "route": exchange.route,
            "model": exchange.model or None,
            "engine": exchange.engine or None,
            "status": status,
            "stream": exchange.stream,
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "completion_tokens": usage.completion_tokens,
            "duration_s": round(duration, 4),
            "first_byte_s": exchange.first_byte_s and round(exchange.first_byte_s, 4),
        }
        log.info("request", **{name: fact for name, fact in facts.items() if fact is not None})
        for name, fact in facts.items():
            if fact is not None and name not in {"route", "status", "duration_s"}:
                span.set_attribute(f"saltwall.{name}", fact)
        span.set_attribute("http.response.status_code", status)
        if status >= 500:
            mark_failed(span)
