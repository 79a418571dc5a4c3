"""What the commands that touch tenants share: settings, keyring and one transaction."""

import asyncio
import getpass
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_platform.cli.errors import EXPECTED, CliError, explain
from saltwall_platform.settings import Settings
from saltwall_platform.stack import running
from saltwall_tenants import audit_checkpoints, tenants
from saltwall_tenants.audit_checkpoints import Checkpoint, SigningKey
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
    """Runs `work` in one transaction on the configured database, and signs the audit log."""

    async def run() -> T:
        database = open_database()
        try:
            async with database.transaction() as tx:
                done = await work(tx)
            await signed_off(database)
            return done
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


def signing_key() -> SigningKey:
    """What signs checkpoints of the audit log; made where nothing has been signed yet.

    Raises:
        CliError: it is gone: a new one would sign for another log.
    """
    directory, signed = settings().keys_dir, settings().checkpoints
    if not (directory / audit_checkpoints.FILE_NAME).exists() and signed.exists():
        raise CliError(
            f"{directory / audit_checkpoints.FILE_NAME} is missing, but has signed {signed}:"
            " restore it from your backup, or move that file away to begin anew"
        )
    return SigningKey.load_or_create(directory)


async def checkpoint(database: Database, path: Path | None = None) -> Checkpoint:
    """Signs the audit log as it is now and adds that to `path`, or to the configured file."""
    key, path = signing_key(), path or settings().checkpoints
    last = audit_checkpoints.newest(path, key)
    async with database.snapshot() as tx:
        made = await audit_checkpoints.make(tx, key, last)
    if made != last:
        audit_checkpoints.append(path, made)
    return made


async def signed_off(database: Database) -> None:
    """Signs what has just been committed; says so if it cannot, for the change stands."""
    try:
        await checkpoint(database)
    except EXPECTED as error:
        said = explain(error, schema_is_old)
        print(f"saltwall: done, but the audit log has no new checkpoint: {said}", file=sys.stderr)


def schema_is_old() -> bool:
    """Whether the configured database is not at this release's schema."""
    from saltwall_migrations import current, head

    try:
        return current(settings().database_url) != head()
    except Exception:  # whatever it is, the caller has a better error to show
        return False
