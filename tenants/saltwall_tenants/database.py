"""The database: SQLite in a file, or PostgreSQL; transactions that write, snapshots that read."""

import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from saltwall_tenants.errors import Invalid

CONNECT_TIMEOUT_S = 10
LOCK_TIMEOUT_MS = 10_000
WAL_POLL_S = 0.005


class Database:
    """A pool of connections to one database.

    Args:
        url: `sqlite:///PATH` or `postgresql://...` with libpq's parameters.

    Raises:
        Invalid: no such kind of database, or its driver is not installed.
    """

    def __init__(self, url: str) -> None:
        self._engine = connect(url)
        self._snapshots = snapshots(self._engine)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        """One transaction that may write: committed at the end, rolled back on any error."""
        async with AsyncSession(self._engine, expire_on_commit=False) as session, session.begin():
            yield session

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncSession]:
        """One consistent view; the database refuses to write in it."""
        async with AsyncSession(self._snapshots) as session, session.begin():
            yield session

    async def dispose(self) -> None:
        """Closes every connection."""
        await self._engine.dispose()


def sqlite_path(url: str) -> Path | None:
    """The file of an SQLite URL; None for another kind of database."""
    parsed = _parse(url)
    return Path(parsed.database or "") if parsed.drivername == "sqlite" else None


def connect(url: str) -> AsyncEngine:
    """An engine for a plain URL; the drivers are our choice, and their errors hide parameters."""
    parsed = _parse(url)
    if parsed.drivername == "sqlite":
        engine = create_async_engine(
            parsed.set(drivername="sqlite+aiosqlite"), hide_parameters=True
        )
        event.listen(engine.sync_engine, "connect", _prepare_sqlite)
        event.listen(engine.sync_engine, "begin", _begin_sqlite)
        return engine
    if find_spec("asyncpg") is None:
        raise Invalid("PostgreSQL needs a driver: pip install '.[postgres]' in a checkout")
    import asyncpg

    async def connection() -> Any:  # asyncpg itself reads the URL: it knows all of libpq's forms
        return await asyncpg.connect(
            url,
            timeout=CONNECT_TIMEOUT_S,
            server_settings={"application_name": "saltwall", "lock_timeout": f"{LOCK_TIMEOUT_MS}"},
        )

    return create_async_engine(
        "postgresql+asyncpg://", async_creator=connection, hide_parameters=True, pool_pre_ping=True
    )


def snapshots(engine: AsyncEngine) -> AsyncEngine:
    """The same pool, whose transactions only read, and read one state."""
    if engine.dialect.name == "sqlite":
        return engine.execution_options(saltwall_snapshot=True)
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        parsed = None
    if parsed is None or parsed.drivername not in {"sqlite", "postgresql", "postgres"}:
        raise Invalid("the database URL must start with sqlite:/// or postgresql://")
    if parsed.drivername == "sqlite" and parsed.database in {None, "", ":memory:"}:
        raise Invalid("the SQLite URL must name a file: sqlite:///PATH")
    return parsed


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver starts no transactions: _begin_sqlite does
    cursor = connection.cursor()
    for setting in (
        f"busy_timeout = {LOCK_TIMEOUT_MS}",
        "foreign_keys = ON",
        "secure_delete = ON",  # a destroyed secret is overwritten in the file
    ):
        cursor.execute(f"PRAGMA {setting}")
    _use_wal(cursor)
    cursor.close()


def _use_wal(cursor: Any) -> None:
    """Changes a new file's journal, for which SQLite itself does not wait while it is locked."""
    until = time.monotonic() + LOCK_TIMEOUT_MS / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        time.sleep(WAL_POLL_S)  # between tries, while another changes the same new file


def _begin_sqlite(connection: Connection) -> None:
    reads = connection.get_execution_options().get("saltwall_snapshot", False)
    connection.exec_driver_sql(f"PRAGMA query_only = {'ON' if reads else 'OFF'}")
    # A writer takes the lock at once: a deferred one could fail half way through.
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
