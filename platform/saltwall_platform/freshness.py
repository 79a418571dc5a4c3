"""How far this process may trust what it remembers of the database: one second, no more."""

import asyncio
from collections.abc import Callable

import structlog
from sqlalchemy.exc import SQLAlchemyError

from saltwall_platform.errors import unavailable
from saltwall_tenants import changes
from saltwall_tenants.database import Database
from saltwall_tenants.errors import DomainError

MAX_STALENESS_S = 1.0
LOOKUP_TIMEOUT_S = 5.0
DATABASE_ERRORS = (SQLAlchemyError, DomainError, OSError, TimeoutError)
Listener = Callable[[frozenset[str]], None]

log = structlog.get_logger(__name__)


class Freshness:
    """Polls the change counter, and tells listeners which sections moved.

    `version` grows with every move: what was read under another version is not to be kept.
    """

    def __init__(self, database: Database, interval_s: float) -> None:
        self._database = database
        self._interval_s = interval_s
        self._epochs: dict[str, int] = {}
        self._as_of = float("-inf")
        self._listeners: list[Listener] = []
        self._lock = asyncio.Lock()
        self._failing = False
        self.version = 0

    def listen(self, listener: Listener) -> None:
        """Calls `listener` with the sections that moved, right after each move was seen."""
        self._listeners.append(listener)

    def epoch(self, section: str) -> int:
        """The last epoch seen of a section; 0 before the first look."""
        return self._epochs.get(section, 0)

    @property
    def age_s(self) -> float:
        """How old the last successful look at the database is (seconds)."""
        return asyncio.get_running_loop().time() - self._as_of

    async def run(self) -> None:
        """Polls for ever."""
        while True:
            async with self._lock:
                try:
                    await self._poll()
                except DATABASE_ERRORS as error:
                    self._note_failure(error)
            await asyncio.sleep(self._interval_s)

    async def ensure(self, max_age_s: float = MAX_STALENESS_S) -> None:
        """Returns once what is remembered is at most that old (seconds).

        Raises:
            ApiError: 503; the database does not answer, so nobody can be let in.
        """
        asked = asyncio.get_running_loop().time()
        if self.age_s <= max_age_s:
            return
        async with self._lock:
            if self._as_of >= asked - max_age_s:
                return  # another request has asked meanwhile
            try:
                await self._poll()
            except DATABASE_ERRORS as error:
                self._note_failure(error)
                raise unavailable("Keys cannot be checked.", "database_unavailable") from None

    async def _poll(self) -> None:
        started = asyncio.get_running_loop().time()
        async with asyncio.timeout(MAX_STALENESS_S), self._database.snapshot() as tx:
            epochs = await changes.read(tx)
        if not epochs:
            raise TimeoutError("the change counter is empty")
        moved = frozenset(s for s, epoch in epochs.items() if self._epochs.get(s) != epoch)
        self._epochs, self._as_of = epochs, started
        if self._failing:
            log.info("database answers again")
            self._failing = False
        if moved:
            self.version += 1
            for listener in self._listeners:
                listener(moved)

    def _note_failure(self, error: BaseException) -> None:
        if not self._failing:
            log.error(
                "database does not answer; is it there, and migrated (saltwall db upgrade)?",
                error=type(error).__name__,
            )
        self._failing = True
