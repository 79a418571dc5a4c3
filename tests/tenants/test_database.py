"""Transactions commit or vanish; snapshots are consistent and read only; errors keep secrets."""

import sqlite3
import threading
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import insert, select, text, update
from sqlalchemy.exc import DBAPIError, StatementError

from saltwall_tenants import tenants
from saltwall_tenants.database import Database, sqlite_path
from saltwall_tenants.errors import Invalid
from saltwall_tenants.keyring import Keyring
from saltwall_tenants.models import ApiKeyRow, TenantRow
from saltwall_tenants.tenants import Tenant


async def test_transaction_commits_at_its_end(db: Database, acme: Tenant) -> None:
    """What a transaction wrote is there for the next one."""
    async with db.snapshot() as tx:
        assert await tenants.list_all(tx) == [acme]


async def test_transaction_rolls_back_on_any_error(db: Database, keyring: Keyring) -> None:
    """An error inside a transaction leaves nothing of it."""

    async def fail_half_way() -> None:
        async with db.transaction() as tx:
            await tenants.create(tx, keyring, "acme", actor="cli:test")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_half_way()
    async with db.snapshot() as tx:
        assert await tenants.list_all(tx) == []


async def test_snapshot_sees_one_state(db: Database, acme: Tenant) -> None:
    """A change that commits during a snapshot is not seen in it."""
    async with db.snapshot() as reader:
        assert (await tenants.get(reader, "acme")).status == "active"
        async with db.transaction() as tx:
            await tenants.suspend(tx, "acme", actor="cli:test")
        assert (await tenants.get(reader, "acme")).status == "active"
    async with db.snapshot() as reader:
        assert (await tenants.get(reader, "acme")).status == "suspended"


async def test_snapshot_refuses_to_write(db: Database, acme: Tenant) -> None:
    """The database itself refuses a write in a snapshot, and a later transaction may write."""
    with pytest.raises(DBAPIError, match=r"(?i)read.?only"):
        async with db.snapshot() as tx:
            await tx.execute(update(TenantRow).values(status="suspended"))
    async with db.transaction() as tx:
        await tenants.suspend(tx, "acme", actor="cli:test")


async def test_times_come_back_in_utc(db: Database) -> None:
    """A time in any zone is stored as that instant and read back in UTC, to the microsecond."""
    elsewhere = timezone(timedelta(hours=-7))
    at = datetime(2026, 3, 29, 18, 30, 15, 123456, tzinfo=elsewhere)
    async with db.transaction() as tx:
        await tx.execute(
            insert(TenantRow).values(id=uuid4(), name="t", status="active", created_at=at)
        )
        read = (await tx.execute(select(TenantRow.created_at))).scalar_one()
    assert read == at
    assert read.tzinfo is UTC


async def test_naive_time_is_refused(db: Database) -> None:
    """A time without a zone never reaches the database."""
    async with db.transaction() as tx:
        with pytest.raises(StatementError, match="timezone-aware"):
            await tx.execute(select(TenantRow).where(TenantRow.created_at == datetime(2026, 1, 1)))


async def test_errors_show_no_parameters(db: Database, acme: Tenant) -> None:
    """A failed statement's error, which gets logged, does not show the values it carried."""
    row = {
        "public_id": "aaaaaaaaaaaa",
        "tenant_id": acme.id,
        "label": "canary-label",
        "mac": b"canary-mac",
        "pepper_version": 1,
        "created_at": acme.created_at,
    }
    async with db.transaction() as tx:
        await tx.execute(insert(ApiKeyRow).values(**row))
    with pytest.raises(DBAPIError) as failure:
        async with db.transaction() as tx:
            await tx.execute(insert(ApiKeyRow).values(**row))
    assert "canary" not in str(failure.value)


async def test_foreign_keys_hold(db: Database) -> None:
    """A key of no tenant is refused by the database."""
    with pytest.raises(DBAPIError, match=r"(?i)foreign key"):
        async with db.transaction() as tx:
            await tx.execute(
                insert(ApiKeyRow).values(
                    public_id="aaaaaaaaaaaa",
                    tenant_id=uuid4(),
                    label="",
                    mac=b"",
                    pepper_version=1,
                    created_at=datetime.now(UTC),
                )
            )


@pytest.mark.parametrize(
    "url",
    [
        "",
        "mysql://root@localhost/saltwall",
        "postgresql+psycopg://localhost/saltwall",
        "sqlite+aiosqlite:///saltwall.db",
        "postgresql://localhost:port/saltwall",
        "not a url",
    ],
)
def test_other_databases_are_refused(url: str) -> None:
    """A URL of another kind says which kinds there are, and never echoes the URL."""
    with pytest.raises(Invalid, match=r"sqlite:/// or postgresql://") as refusal:
        Database(url)
    assert not url or url not in str(refusal.value)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_memory_is_no_database(url: str) -> None:
    """SQLite in memory, which every connection would see its own of, is refused."""
    with pytest.raises(Invalid, match="must name a file"):
        Database(url)


def test_password_is_not_shown() -> None:
    """Neither the database nor its engine shows the password of its URL."""
    database = Database("postgresql://saltwall:canary@localhost/saltwall")
    assert "canary" not in repr(database) + repr(vars(database))


async def test_a_new_file_may_be_locked_for_a_moment(tmp_path: Path) -> None:
    """By whoever opens it first at the same time, and writes before its journal is changed."""
    path = tmp_path / "new.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.3, other.rollback)
    release.start()
    database = Database(f"sqlite:///{path}")
    async with database.snapshot() as snapshot:
        assert (await snapshot.execute(text("PRAGMA journal_mode"))).scalar() == "wal"
    release.join()
    await database.dispose()
    other.close()


def test_sqlite_path() -> None:
    """The file is known for SQLite, relative and absolute, and for nothing else."""
    assert sqlite_path("sqlite:///data/s.db") == Path("data/s.db")
    assert sqlite_path("sqlite:////data/s.db") == Path("/data/s.db")
    assert sqlite_path("postgresql://localhost/s") is None
