"""Keeps one engine's policy current, and decides whether it can be sent requests."""

import asyncio
import time
from contextlib import suppress

import httpx
import structlog

from saltwall_platform.control import ControlError, EngineControl, PolicyStaleError
from saltwall_platform.freshness import DATABASE_ERRORS, Freshness
from saltwall_platform.metrics import Metrics
from saltwall_platform.replicas import Replica
from saltwall_tenants import policy
from saltwall_tenants.changes import AUTHORISATION
from saltwall_tenants.database import Database
from saltwall_tenants.wire import Policy, Refusal

PROBE_S = 1.0
FIRST_BACKOFF_S = 0.25
MAX_BACKOFF_S = 5.0
RECHECK_S = 5.0
SILENCES = 3
SNAPSHOT_TIMEOUT_S = 10.0

log = structlog.get_logger(__name__)


class Pusher:
    """One background task an engine: attest and push when due, probe, and again.

    A push is due at its start, on every change, at a third of the lease, and when the engine was
    started again or could not be reached. Each is preceded by a check of the attestation, and an
    engine that has lost its policy serves nobody, so none is routed to that was not checked.
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
            problems = (await self._control.attestation()).problems(self._replica.engine.name)
            if problems:
                self._forget("; ".join(problems))
                return RECHECK_S
            await self._push()
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
            or time.monotonic() - leased_at >= self._lease_s / 3
        )

    async def _push(self) -> None:
        self._asked = False  # what asks from here on has not seen what is read below
        try:
            document = await self._send()
        except PolicyStaleError:  # another gateway may have been faster: read what it has read
            document = await self._send()
        self._replica.acknowledged = document.authorisation.epoch
        self._replica.acknowledged_at = time.monotonic()
        self._pushed.set()
        self._acknowledged.set()
        log.debug("policy pushed", engine=self._replica.label, epoch=self._replica.acknowledged)

    async def _send(self) -> Policy:
        async with asyncio.timeout(SNAPSHOT_TIMEOUT_S), self._database.snapshot() as tx:
            document = await policy.snapshot(tx, self._replica.engine.name, lease_s=self._lease_s)
        try:
            await self._control.push(document)
        except PolicyStaleError:
            self._metrics.alarm("policy_stale")
            raise
        return document

    def _forget(self, problem: str) -> None:
        """What was known of the engine holds no longer; it may be another process by now."""
        self._replica.acknowledged, self._replica.acknowledged_at = 0, None
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
