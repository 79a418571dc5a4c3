"""What the commands that touch tenants share: settings, keyring and one transaction."""

import asyncio
import getpass
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_platform.cli.errors import CliError
from saltwall_platform.settings import Settings
from saltwall_platform.stack import running
from saltwall_tenants import tenants
from saltwall_tenants.database import Database, sqlite_path
from saltwall_tenants.keyring import FILE_NAME, Keyring

T = TypeVar("T")


def configured(**chosen: Any) -> Settings:
    """The settings of the environment; `chosen` fields win."""
    return Settings.model_validate(chosen)


def settings(**chosen: Any) -> Settings:
    """The same; what is left open is as `saltwall up` runs now in that data directory."""
    found = configured(**chosen)
    up = running.find(found.home)
    if up is None:
        return found
    return configured(**{**up.settings(), **{k: getattr(found, k) for k in found.model_fields_set}})


def actor() -> str:
    """Who the audit log names."""
    try:
        return f"cli:{getpass.getuser()}"
    except (OSError, KeyError):  # a container without an entry for this user
        return f"cli:uid-{os.getuid()}"


def open_database() -> Database:
    """The configured database.

    Raises:
        CliError: it is a file that is not there; SQLite would make an empty one.
    """
    url = settings().database_url
    path = sqlite_path(url)
    if path is not None and not path.exists():
        raise CliError(
            f"there is no database at {path}: set SALTWALL_HOME to the data directory of your "
            "installation, or make a new one with `saltwall db upgrade`"
        )
    return Database(url)


def write(work: Callable[[AsyncSession], Awaitable[T]]) -> T:
    """Runs `work` in one transaction on the configured database."""

    async def run() -> T:
        database = open_database()
        try:
            async with database.transaction() as tx:
                return await work(tx)
        finally:
            await database.dispose()

    return asyncio.run(run())


def read(work: Callable[[AsyncSession], Awaitable[T]]) -> T:
    """Runs `work` on one consistent view of the configured database."""

    async def run() -> T:
        database = open_database()
        try:
            async with database.snapshot() as tx:
                return await work(tx)
        finally:
            await database.dispose()

    return asyncio.run(run())


async def keyring(tx: AsyncSession) -> Keyring:
    """The keyring that belongs to the database; made for a database that has no tenant yet.

    Raises:
        CliError: there are tenants but no keyring: a new one could not open their salts.
    """
    directory = settings().keys_dir
    if (directory / FILE_NAME).exists():
        return Keyring.load(directory)
    if await tenants.list_all(tx, deleted=True):
        raise CliError(
            f"{directory / FILE_NAME} is missing, but the database has tenants: restore it from "
            "your backup, or run this where the gateway runs (SALTWALL_KEYS_DIR)"
        )
    return Keyring.load_or_create(directory)


def schema_is_old() -> bool:
    """Whether the configured database is not at this release's schema."""
    from saltwall_migrations import current, head

    try:
        return current(settings().database_url) != head()
    except Exception:  # whatever it is, the caller has a better error to show
        return False
