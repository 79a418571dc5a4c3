"""Settles usage: what each request used goes to the database at once, in batches under load."""

import asyncio
from datetime import datetime

import structlog

from saltwall_platform.freshness import DATABASE_ERRORS
from saltwall_platform.metrics import Metrics
from saltwall_tenants import api_keys, usage
from saltwall_tenants.database import Database
from saltwall_tenants.usage import UsageRecord

BATCH = 500
RETRY_S = 1.0
TOUCH_EVERY_S = 5.0
FLUSH_TIMEOUT_S = 30.0

log = structlog.get_logger(__name__)


class Ledger:
    """Holds what is not yet written; nothing is dropped, and writing again counts once.

    When the database is away no new request is let in, so what waits here is bounded by what was
    running.
    """

    def __init__(self, database: Database, metrics: Metrics) -> None:
        self._database = database
        self._metrics = metrics
        self._records: list[UsageRecord] = []
        self._used: dict[str, datetime] = {}
        self._more = asyncio.Event()

    def settle(self, record: UsageRecord) -> None:
        """Adds what a request used."""
        self._records.append(record)
        self._metrics.unsettled.set(len(self._records))
        self._more.set()

    def used(self, key_id: str, at: datetime) -> None:
        """Notes that a key was used; written down every few seconds."""
        self._used[key_id] = at

    async def run(self) -> None:
        """Writes for ever."""
        while True:
            try:
                async with asyncio.timeout(TOUCH_EVERY_S):
                    await self._more.wait()
            except TimeoutError:
                pass
            self._more.clear()
            try:
                await self._flush()
            except DATABASE_ERRORS as error:
                log.error("usage waits for the database", error=type(error).__name__)
                self._more.set()
                await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        """Writes what is left; says how much could not be."""
        try:
            await self._flush()
        except DATABASE_ERRORS as error:
            lost = len(self._records)
            log.error("usage is lost", records=lost, error=type(error).__name__)

    async def _flush(self) -> None:
        while self._records or self._used:
            records = self._records[:BATCH]
            used, self._used = self._used, {}
            try:
                async with asyncio.timeout(FLUSH_TIMEOUT_S), self._database.transaction() as tx:
                    await usage.record(tx, records)
                    await api_keys.touch(tx, used)
            except BaseException:
                self._used = used | self._used
                raise
            del self._records[: len(records)]
            self._metrics.unsettled.set(len(self._records))
