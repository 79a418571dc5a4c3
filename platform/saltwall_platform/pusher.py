"""Keeps one engine's policy current, and decides whether it can be sent requests."""

import asyncio
import time
from contextlib import suppress
from dataclasses import replace

import httpx
import structlog

from saltwall_platform.control import ControlError, EngineControl, PolicyStaleError, Pushed
from saltwall_platform.freshness import DATABASE_ERRORS, Freshness
from saltwall_platform.metrics import Metrics
from saltwall_platform.replicas import UNKNOWN_QUOTAS, Replica
from saltwall_tenants import policy
from saltwall_tenants.changes import AUTHORISATION, QUOTAS
from saltwall_tenants.database import Database
from saltwall_tenants.wire import Policy, Quotas, Refusal, WireError

PROBE_S = 1.0
FIRST_BACKOFF_S = 0.25
MAX_BACKOFF_S = 5.0
RECHECK_S = 5.0
SILENCES = 3
SNAPSHOT_TIMEOUT_S = 10.0
OLD_ENGINE = "it attests no capacity, so it is of a release without quotas: upgrade it"

log = structlog.get_logger(__name__)


class Pusher:
    """One background task an engine: attest and push when due, probe, and again.

    A push is due at its start, on every change, at a third of the lease, and when the engine was
    started again or could not be reached. Each is preceded by a check of the attestation, and an
    engine that has lost its policy serves nobody, so none is routed to that was not checked.

    Quotas that an engine refuses are an alarm and nothing more: the lease is renewed with the push
    that brought them, and they are sent again with the next.
    """

    def __init__(
        self,
        replica: Replica,
        control: EngineControl,
        database: Database,
        freshness: Freshness,
        metrics: Metrics,
        *,
        lease_s: int,
        acknowledged: asyncio.Event,
    ) -> None:
        self._replica = replica
        self._control = control
        self._database = database
        self._freshness = freshness
        self._metrics = metrics
        self._lease_s = lease_s
        self._acknowledged = acknowledged
        self._wake = asyncio.Event()
        self._pushed = asyncio.Event()
        self._document: Policy | None = None
        self._asked = False
        self._backoff_s = FIRST_BACKOFF_S
        self._silences = 0
        freshness.listen(lambda _sections: self._wake.set())

    async def run(self) -> None:
        """Works for ever."""
        while True:
            self._wake.clear()
            delay = await self._attempt()
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wake.wait()

    async def push_again(self, timeout_s: float) -> bool:
        """Asks for a push now; returns whether one succeeded in time."""
        self._pushed.clear()
        self._asked = True
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_s):
                await self._pushed.wait()
        except TimeoutError:
            return False
        return True

    def lost(self) -> None:
        """A request could not reach the engine: look at once."""
        self._forget("it refuses connections")
        self._wake.set()

    async def _attempt(self) -> float:
        try:
            delay = await self._step()
        except ControlError as error:
            self._forget(str(error))
            return self._back_off()
        except httpx.TimeoutException as error:
            if isinstance(error, httpx.ConnectTimeout):
                self._forget("it cannot be reached")
            else:
                self._note_silence()
            return self._back_off()
        except (httpx.HTTPError, httpx.InvalidURL):
            self._forget("it cannot be reached")
            return self._back_off()
        except DATABASE_ERRORS as error:
            # Without a fresh policy the lease is not renewed: the engine closes by itself.
            log.error("policy cannot be read", error=type(error).__name__)
            return self._back_off()
        self._backoff_s = FIRST_BACKOFF_S
        self._silences = 0
        return delay

    async def _step(self) -> float:
        if self._is_due():
            attestation = await self._control.attestation()
            problems = attestation.problems(self._replica.engine.name)
            if problems:
                self._forget("; ".join(problems))
                return RECHECK_S
            await self._push(takes_quotas=attestation.capacity is not None)
        reason = await self._control.not_ready()
        if reason == Refusal.NO_POLICY:  # it was started again
            self._forget(reason)
            return self._back_off()
        if reason:
            self._asked = self._asked or reason == Refusal.LEASE_EXPIRED
            self._replica.close(reason)
        elif self._replica.acknowledged:  # else a request has found it unreachable meanwhile
            self._replica.open()
        return min(PROBE_S, self._lease_s / 3)

    def _is_due(self) -> bool:
        replica = self._replica
        leased_at = replica.acknowledged_at
        return (
            self._asked
            or leased_at is None
            or self._freshness.epoch(AUTHORISATION) > replica.acknowledged
            or self._freshness.epoch(QUOTAS) > replica.quotas_tried
            or time.monotonic() - leased_at >= self._lease_s / 3
        )

    async def _push(self, *, takes_quotas: bool) -> None:
        self._asked = False  # what asks from here on has not seen what is read below
        try:
            document, pushed = await self._send(takes_quotas)
            if pushed.quotas_stale:
                document, pushed = await self._send(takes_quotas)
        except PolicyStaleError:  # another gateway may have been faster: read what it has read
            document, pushed = await self._send(takes_quotas)
        if pushed.quotas_problem:
            self._metrics.alarm("quotas_refused")
        self._replica.note_quotas(pushed.quotas_problem)
        self._replica.acknowledged = document.authorisation.epoch
        self._replica.acknowledged_at = time.monotonic()
        self._pushed.set()
        self._acknowledged.set()
        log.debug("policy pushed", engine=self._replica.label, epoch=self._replica.acknowledged)

    async def _send(self, takes_quotas: bool) -> tuple[Policy, Pushed]:
        quotas_seen = self._freshness.epoch(QUOTAS)
        async with asyncio.timeout(SNAPSHOT_TIMEOUT_S), self._database.snapshot() as tx:
            name, lease_s = self._replica.engine.name, self._lease_s
            document = await policy.snapshot(tx, name, lease_s=lease_s, earlier=self._document)
        self._document = document
        stored = document.quotas
        if not takes_quotas:
            document = replace(document, quotas=None)
        try:
            pushed = await self._control.push(document)
        except PolicyStaleError:
            self._metrics.alarm("policy_stale")
            raise
        self._replica.quotas_tried = stored.epoch if isinstance(stored, Quotas) else quotas_seen
        if isinstance(stored, WireError):
            pushed = Pushed(f"a stored quota cannot be read: {stored}")
        elif stored is not None and stored.tenants and not takes_quotas:
            pushed = Pushed(OLD_ENGINE)
        return document, pushed

    def _forget(self, problem: str) -> None:
        """What was known of the engine holds no longer; it may be another process by now."""
        self._replica.acknowledged, self._replica.acknowledged_at = 0, None
        self._replica.quotas_tried, self._replica.quotas_problem = 0, UNKNOWN_QUOTAS
        self._replica.fingerprint, self._replica.recounts_reasoning = None, False
        self._replica.close(problem)

    def _note_silence(self) -> None:
        self._silences += 1
        log.warning("engine's control routes are silent", engine=self._replica.label)
        if self._silences >= SILENCES:
            self._replica.close("it does not answer")

    def _back_off(self) -> float:
        delay = self._backoff_s
        self._backoff_s = min(self._backoff_s * 2, MAX_BACKOFF_S)
        return delay
