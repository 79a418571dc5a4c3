"""Carries salt rotations through: promotes what every engine knows, ends what has retired."""

import asyncio
from collections.abc import Iterable

import structlog

from saltwall_platform.freshness import DATABASE_ERRORS, Freshness
from saltwall_platform.replicas import Replica
from saltwall_tenants import changes, policy, salts
from saltwall_tenants.clock import utc_now
from saltwall_tenants.database import Database

ACTOR = "gateway"
EXPIRE_EVERY_S = 1.0

log = structlog.get_logger(__name__)


class Rotation:
    """Moves salt generations along; several gateways may do so at once.

    `acknowledged` is set by pushers whenever an engine confirms a policy.
    """

    def __init__(
        self,
        database: Database,
        replicas: Iterable[Replica],
        freshness: Freshness,
        acknowledged: asyncio.Event,
    ) -> None:
        self._database = database
        self._replicas = replicas
        self._acknowledged = acknowledged
        freshness.listen(lambda _sections: acknowledged.set())

    async def run(self) -> None:
        """Works for ever."""
        while True:
            try:
                async with asyncio.timeout(EXPIRE_EVERY_S):
                    await self._acknowledged.wait()
            except TimeoutError:
                pass
            self._acknowledged.clear()
            try:
                await self._promote()
                await self._expire()
            except DATABASE_ERRORS as error:
                log.error("salt rotation waits for the database", error=type(error).__name__)
                await asyncio.sleep(EXPIRE_EVERY_S)

    async def _promote(self) -> None:
        async with self._database.snapshot() as tx:
            epoch = (await changes.read(tx))[changes.AUTHORISATION]
            pending = await policy.pending(tx)
        routable = [replica for replica in self._replicas if replica.routable]
        # An engine that comes back later gets the pending generation before it is routable.
        if not routable or any(replica.acknowledged < epoch for replica in routable):
            return
        for tenant, generation in pending:
            async with self._database.transaction() as tx:
                if await salts.promote(tx, tenant, generation, actor=ACTOR):
                    log.info("salt promoted", tenant=str(tenant), generation=generation)

    async def _expire(self) -> None:
        async with self._database.transaction() as tx:
            expired = await salts.expire(tx, utc_now(), actor=ACTOR)
        if expired:
            log.info("retired salts destroyed", count=expired)
