"""The requests that are running, so that a revoked key or a suspended tenant stops at once."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from starlette.types import Receive

from saltwall_platform.auth import Authenticator, Caller, has_expired
from saltwall_platform.errors import ApiError, ClientGone, invalid_key, unavailable
from saltwall_platform.freshness import Freshness

RETRY_S = 0.25
TICK_S = 0.5
Cause = ApiError | ClientGone

log = structlog.get_logger(__name__)


class Flight:
    """One running request; `cause` says why it was cut, if it was."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.cause: Cause | None = None
        self._task: asyncio.Task[None] | None = None

    def cut(self, cause: Cause) -> None:
        """Cancels the work; the first cause stands."""
        if self.cause is None:
            self.cause = cause
            if self._task is not None:
                self._task.cancel()

    async def run(self, work: Coroutine[Any, Any, None], receive: Receive) -> None:
        """Does the work until it ends, is cut, or the client goes away.

        Returns only when the work has: its upstream connection is closed by then.

        Raises:
            ApiError, ClientGone: why it was cut.
        """
        task = self._task = asyncio.create_task(work)
        if self.cause is not None:
            task.cancel()
        watch = asyncio.create_task(_disconnect(receive))
        try:
            await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self.cut(ClientGone())
                await asyncio.wait({task})
        finally:  # also when we are cancelled ourselves
            task.cancel()
            watch.cancel()
        if self.cause is not None and (task.cancelled() or task.exception()):
            raise self.cause
        task.result()


class InFlight:
    """All running requests of this process."""

    def __init__(self, authenticator: Authenticator, freshness: Freshness) -> None:
        self._authenticator = authenticator
        self._freshness = freshness
        self._flights: set[Flight] = set()
        self._changed = asyncio.Event()
        self._landed = asyncio.Event()
        self._closing = False
        freshness.listen(lambda _sections: self._changed.set())

    def __len__(self) -> int:
        return len(self._flights)

    @contextmanager
    def flight(self, caller: Caller) -> Iterator[Flight]:
        """Registers a request for as long as the context lasts.

        Raises:
            ApiError: 503; the process is about to end.
        """
        if self._closing:
            raise _restarting()
        flight = Flight(caller)
        self._flights.add(flight)
        if caller.version != self._freshness.version:
            self._changed.set()  # it was let in before a change whose check it missed
        try:
            yield flight
        finally:
            self._flights.discard(flight)
            self._landed.set()

    async def run(self) -> None:
        """Checks running requests after each change, for ever; cuts those whose key lost."""
        while True:
            try:
                async with asyncio.timeout(TICK_S):
                    await self._changed.wait()
            except TimeoutError:
                self._cut_expired()
                continue
            self._changed.clear()
            try:
                await self._check_all()
            except ApiError:  # the database does not answer; new requests are refused meanwhile
                self._changed.set()
                await asyncio.sleep(RETRY_S)

    async def drain(self, grace_s: float) -> None:
        """Lets no more in, waits for the running ones, and cuts them after `grace_s` seconds."""
        self._closing = True
        try:
            async with asyncio.timeout(grace_s):
                await self._empty()
        except TimeoutError:
            for flight in list(self._flights):
                flight.cut(_restarting())
            await self._empty()

    async def _empty(self) -> None:
        while self._flights:
            self._landed.clear()
            await self._landed.wait()

    def _cut_expired(self) -> None:
        for flight in list(self._flights):
            if has_expired(flight.caller.principal):
                flight.cut(invalid_key())

    async def _check_all(self) -> None:
        verdicts: dict[str, ApiError | None] = {}
        for flight in list(self._flights):
            presented = flight.caller.presented
            if presented not in verdicts:
                verdicts[presented] = await self._verdict(presented)
            refusal = verdicts[presented]
            if refusal is not None:
                log.info("cut a running request", reason=refusal.code)
                flight.cut(refusal)

    async def _verdict(self, presented: str) -> ApiError | None:
        try:
            await self._authenticator.check(presented)
        except ApiError as refusal:
            if refusal.status == 503:
                raise
            return refusal
        return None


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _restarting() -> ApiError:
    return unavailable("The service is restarting.", "shutting_down")
