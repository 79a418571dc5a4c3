"""Brings a database to this release's schema."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from saltwall_tenants.database import connect, snapshots, sqlite_path
from saltwall_tenants.errors import Conflict

_LOCK = 0x53616C7477616C6C  # "Saltwall", as the number of a PostgreSQL advisory lock
_T = TypeVar("_T")


def head() -> str:
    """The revision of this release."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    if revision is None:
        raise RuntimeError("this installation lacks its migrations; install saltwall again")
    return revision


def current(url: str) -> str | None:
    """The revision of the database; None when it is empty or does not exist yet."""
    path = sqlite_path(url)
    if path is not None and not path.exists():
        return None  # and looking must not make the file
    return _run(url, _revision, write=False)


def upgrade(url: str) -> str:
    """Brings the database to this release's revision, which it returns.

    One transaction, one process at a time: safe to call from every process that starts.

    Raises:
        Conflict: a newer release made this database.
    """
    path = sqlite_path(url)
    if path is not None and not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    return _run(url, _upgrade, write=True)


def _upgrade(connection: Connection) -> str:
    if connection.dialect.name == "postgresql":  # SQLite has locked with BEGIN IMMEDIATE
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    revision = _revision(connection)
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if revision is not None and revision not in known:
        raise Conflict(
            f"the database is at revision {revision}, which this release does not know:"
            " run the release that made it, or a newer one"
        )
    command.upgrade(_config(connection), "head")
    return head()


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", "saltwall_migrations:")
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _run(url: str, work: Callable[[Connection], _T], *, write: bool) -> _T:
    async def run() -> _T:
        engine = connect(url)
        try:
            return await _in_transaction(engine if write else snapshots(engine), work)
        finally:
            await engine.dispose()

    # A thread of its own, because the caller's may be running an event loop.
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, run()).result()


async def _in_transaction(engine: AsyncEngine, work: Callable[[Connection], _T]) -> _T:
    async with engine.begin() as connection:
        return await connection.run_sync(work)
