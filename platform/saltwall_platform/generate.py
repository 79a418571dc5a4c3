"""POST /v1/chat/completions and /v1/completions: one request to one engine, and its answer back."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass

import httpx
import structlog

from saltwall_platform.auth import Authenticator, Caller
from saltwall_platform.call import Call, read_call
from saltwall_platform.engine_errors import client_error, refusal
from saltwall_platform.errors import ApiError, engine_failed, engine_unavailable
from saltwall_platform.exchange import Exchange
from saltwall_platform.freshness import Freshness
from saltwall_platform.inflight import InFlight
from saltwall_platform.kv_salts import KvSalts
from saltwall_platform.metrics import Metrics
from saltwall_platform.no_store import wants_no_store
from saltwall_platform.pusher import Pusher
from saltwall_platform.replicas import Replica, Replicas
from saltwall_platform.reply import PASSED_ON
from saltwall_platform.request_body import check_media, read_body
from saltwall_platform.settings import Settings
from saltwall_platform.sse import EventSplitter, EventTooLarge
from saltwall_platform.tracing import Tracing
from saltwall_platform.upstream import Unreachable, Upstream, post, seal
from saltwall_platform.usage import Meter, read_usage
from saltwall_platform.usage_filter import UsageFilter

REPAIR_TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 256 * 2**20
INLINE_PARSE_BYTES = 2**20

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Generate:
    """The handler of both routes; it holds no state of its own."""

    settings: Settings
    client: httpx.AsyncClient
    authenticator: Authenticator
    freshness: Freshness
    kv_salts: KvSalts
    in_flight: InFlight
    replicas: Replicas
    pushers: Mapping[Replica, Pusher]
    metrics: Metrics
    tracing: Tracing

    async def __call__(self, exchange: Exchange) -> None:
        """Serves one request.

        Raises:
            ApiError: what to tell the client.
            ClientGone: nobody is left to be told.
        """
        caller = exchange.caller = await self.authenticator.caller(exchange.headers)
        check_media(exchange.headers)
        limit = self.settings.max_body_bytes
        body = await read_body(exchange.headers, exchange.receive, limit)
        call = read_call(
            body,
            max_sequences=self.settings.max_sequences,
            max_constraint_bytes=self.settings.max_constraint_bytes,
            no_store=wants_no_store(exchange.headers),
        )
        del body
        self.replicas.choose(caller.principal, call.model)  # 404 before anything is remembered
        exchange.model, exchange.stream = call.model, call.stream
        exchange.meter = Meter(call.choices_per_prompt)
        with self.in_flight.flight(caller) as flight:
            await flight.run(self._forward(exchange, call, caller), exchange.receive)

    async def _forward(self, exchange: Exchange, call: Call, caller: Caller) -> None:
        tried: frozenset[Replica] = frozenset()
        repaired = False
        while True:
            replica = self.replicas.choose(caller.principal, call.model, tried)
            try:
                reason = await self._attempt(exchange, call, caller, replica)
            except Unreachable:
                self.pushers[replica].lost()
                tried |= {replica}
                continue
            if reason is None:
                return
            self.metrics.refused(replica.label, reason)
            log.warning("engine refused a ticket", engine=replica.label, reason=reason)
            if repaired:
                self.metrics.alarm("ticket_refused")
                raise engine_unavailable()
            await self._repair(replica, caller)
            repaired = True

    async def _attempt(
        self, exchange: Exchange, call: Call, caller: Caller, replica: Replica
    ) -> str | None:
        """Sends the request; returns why the engine refused its ticket, if it did."""
        principal, path = caller.principal, exchange.route
        salt = await self.kv_salts.get(principal.tenant_id, replica.engine.name, call.scope)
        body, headers = seal(
            call, replica, principal, salt, path=path, request_id=exchange.request_id
        )
        headers |= {"content-type": "application/json"}
        accept = exchange.headers.get("accept", "")
        if accept and accept.isascii():
            headers["accept"] = accept
        exchange.engine, exchange.at_engine = replica.label, True
        replica.requests += 1
        try:
            with self.tracing.attempt(replica.label) as trace_headers:
                async with post(
                    self.client,
                    replica.engine.url + path,
                    body,
                    headers | trace_headers,
                    first_byte_s=self.settings.first_byte_timeout_s,
                    idle_s=self.settings.idle_timeout_s,
                ) as upstream:
                    del body
                    return await self._relay(exchange, call, replica, upstream)
        except Unreachable:
            exchange.at_engine = False
            raise
        finally:
            replica.requests -= 1

    async def _relay(
        self, exchange: Exchange, call: Call, replica: Replica, upstream: Upstream
    ) -> str | None:
        if upstream.status != 200:
            exchange.at_engine = False
            reason = refusal(upstream)
            if reason is None:
                raise await client_error(upstream, call, replica, self.metrics)
            return reason
        if upstream.headers.get("content-type", "").startswith("text/event-stream"):
            await self._relay_stream(exchange, call, replica, upstream)
        else:
            await self._relay_whole(exchange, replica, upstream)
        return None

    async def _relay_whole(self, exchange: Exchange, replica: Replica, upstream: Upstream) -> None:
        body = await upstream.read(MAX_ANSWER_BYTES)
        self._note_first_byte(exchange, upstream)
        try:
            large = len(body) > INLINE_PARSE_BYTES
            document = await asyncio.to_thread(json.loads, body) if large else json.loads(body)
            exchange.meter.final = read_usage(document.get("usage"))
            if "system_fingerprint" in document:
                replica.fingerprint = str(document["system_fingerprint"] or "")
        except (ValueError, AttributeError, RecursionError):
            raise engine_failed() from None
        await exchange.reply.whole(200, body, _passed_on(upstream))

    async def _relay_stream(
        self, exchange: Exchange, call: Call, replica: Replica, upstream: Upstream
    ) -> None:
        splitter, usage_filter = EventSplitter(), UsageFilter(call, replica, exchange.meter)
        reply = exchange.reply
        try:
            async for chunk in upstream.chunks():
                if reply.status is None:
                    self._note_first_byte(exchange, upstream)
                    await reply.begin(_passed_on(upstream))
                await reply.part(b"".join(map(usage_filter.feed, splitter.feed(chunk))))
            if not usage_filter.done:
                raise engine_failed()
        except (ApiError, EventTooLarge) as error:
            if not usage_filter.done:
                if reply.status is not None:
                    await reply.part(usage_filter.release())
                raise error if isinstance(error, ApiError) else engine_failed() from None
        await reply.end()
        if usage_filter.failed:
            exchange.outcome = 502

    async def _repair(self, replica: Replica, caller: Caller) -> None:
        """After a refusal, which is the platform's fault: make the engine know what we know."""
        if not await self.pushers[replica].push_again(REPAIR_TIMEOUT_S):
            raise engine_unavailable()
        await self.freshness.ensure(max_age_s=0)
        await self.authenticator.check(caller.presented)  # it may have lost its right meanwhile

    def _note_first_byte(self, exchange: Exchange, upstream: Upstream) -> None:
        if upstream.first_byte_at is not None:
            exchange.first_byte_s = upstream.first_byte_at - exchange.started
            self.metrics.first_byte(exchange.route, exchange.first_byte_s)


def _passed_on(upstream: Upstream) -> dict[str, str]:
    return {name: upstream.headers[name] for name in PASSED_ON if name in upstream.headers}
