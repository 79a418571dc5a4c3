"""The schema that revisions build is the one that the models describe, on both databases."""

import asyncio
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import JSON, CheckConstraint, Connection, Uuid, bindparam, inspect, text

from saltwall_migrations import current, head, upgrade
from saltwall_migrations.runner import _config
from saltwall_tenants import audit, audit_chain
from saltwall_tenants.audit_chain import Report
from saltwall_tenants.database import Database, connect
from saltwall_tenants.errors import Conflict
from saltwall_tenants.models import Base, UtcDateTime

T = TypeVar("T")


def run(url: str, work: Callable[[Connection], T]) -> T:
    """Does something in one transaction."""

    async def in_transaction() -> T:
        engine = connect(url)
        try:
            async with engine.begin() as connection:
                return await connection.run_sync(work)
        finally:
            await engine.dispose()

    return asyncio.run(in_transaction())


def tables(connection: Connection) -> set[str]:
    """The names of all tables."""
    return set(inspect(connection).get_table_names())


def test_models_and_migrations_agree(database_url: str) -> None:
    """Alembic finds no difference between the migrated database and the models."""

    def differences(connection: Connection) -> list[object]:
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, Base.metadata))

    assert run(database_url, differences) == []


def test_constraints_agree(database_url: str) -> None:
    """Checks and partial indexes, which Alembic does not compare, are the models' too."""

    def constraints(connection: Connection) -> dict[str, object]:
        inspector = inspect(connection)
        found: dict[str, object] = {}
        for table in Base.metadata.tables:
            for check in inspector.get_check_constraints(table):
                found[str(check["name"])] = check["sqltext"]
            for index in inspector.get_indexes(table):
                options = {k: str(v) for k, v in index.get("dialect_options", {}).items()}
                found[str(index["name"])] = (index["column_names"], index["unique"], options)
            for key in inspector.get_foreign_keys(table):
                found[str(key["name"])] = (key["constrained_columns"], key["referred_table"])
            found[str(inspector.get_pk_constraint(table)["name"])] = "primary key"
        return found

    migrated = run(database_url, constraints)
    run(database_url, lambda connection: command.downgrade(_config(connection), "base"))
    run(database_url, Base.metadata.create_all)
    assert migrated == run(database_url, constraints)
    named = {
        c.name
        for table in Base.metadata.tables.values()
        for c in table.constraints
        if isinstance(c, CheckConstraint)
    }
    assert named <= set(migrated)


def test_upgrade_brings_an_empty_database_to_head(empty_database_url: str) -> None:
    """From nothing to this release's revision, which is then the current one."""
    assert current(empty_database_url) is None
    assert upgrade(empty_database_url) == head() == current(empty_database_url)


def test_upgrade_again_changes_nothing(database_url: str) -> None:
    """At head, an upgrade is no work: the change counters stay."""
    read = text("SELECT section, epoch FROM changes ORDER BY section")
    before = run(database_url, lambda connection: connection.execute(read).all())
    assert upgrade(database_url) == head()
    assert run(database_url, lambda connection: connection.execute(read).all()) == before


def test_processes_that_start_at_once_upgrade_once(empty_database_url: str) -> None:
    """Of several upgrades at once, one does the work and the others wait for it."""
    with ThreadPoolExecutor(4) as starts:
        assert set(starts.map(upgrade, [empty_database_url] * 4)) == {head()}


async def test_upgrade_works_inside_an_event_loop(empty_database_url: str) -> None:
    """It is synchronous, and may still be called where a loop is running."""
    assert upgrade(empty_database_url) == head()


def test_revisions_can_be_taken_back(database_url: str) -> None:
    """Down to nothing, and up again to the same schema."""
    run(database_url, lambda connection: command.downgrade(_config(connection), "base"))
    assert run(database_url, tables) == {"alembic_version"}
    assert upgrade(database_url) == head()
    test_models_and_migrations_agree(database_url)


def test_a_database_of_the_first_release_is_upgraded_with_its_data(
    empty_database_url: str,
) -> None:
    """From revision 0001: tenants and epochs stay, quotas begin empty under their own epoch."""
    rows = {
        "tenants": "SELECT id, name, status FROM tenants",
        "changes": "SELECT section, epoch FROM changes WHERE section <> 'quotas' ORDER BY section",
        "quotas": "SELECT tenant_id FROM quotas",
        "epoch": "SELECT epoch FROM changes WHERE section = 'quotas'",
    }

    def read(table: str) -> list[tuple[object, ...]]:
        statement = text(rows[table])
        return run(empty_database_url, lambda c: [tuple(r) for r in c.execute(statement)])

    def fill(connection: Connection) -> None:
        command.upgrade(_config(connection), "0001")
        tenant = "INSERT INTO tenants (id, name, status, created_at) VALUES (:id, 'acme', :s, :at)"
        values = {"id": uuid4(), "s": "active", "at": datetime(2026, 1, 1, tzinfo=UTC)}
        types = [bindparam("id", type_=Uuid()), bindparam("at", type_=UtcDateTime())]
        connection.execute(text(tenant).bindparams(*types), values)
        connection.execute(text("UPDATE changes SET epoch = 1000"))

    run(empty_database_url, fill)
    before = read("tenants"), read("changes")
    assert upgrade(empty_database_url) == head()
    assert (read("tenants"), read("changes")) == before
    assert read("quotas") == []
    assert read("epoch")[0][0] > 10**12  # type: ignore[operator]
    run(empty_database_url, lambda connection: command.downgrade(_config(connection), "0001"))
    assert (read("tenants"), read("changes")) == before
    assert read("epoch") == []


def test_events_of_an_earlier_release_become_a_chain(empty_database_url: str) -> None:
    """In their order, without the gaps that rollbacks left; the way back keeps them all."""
    events = text("SELECT sequence, actor FROM audit_events ORDER BY sequence")
    details = [{"name": "acme"}, {"text": "grüße \0", "list": [1, 0.5, None]}, {}]
    times = [datetime(2026, 1, day, 1, 2, 3, day, tzinfo=UTC) for day in (1, 2, 3)]

    def fill(connection: Connection) -> None:
        command.upgrade(_config(connection), "0002")
        insertion = text(
            "INSERT INTO audit_events (sequence, at, actor, action, subject, detail)"
            " VALUES (:s, :at, :actor, 'a', 'b', :detail)"
        ).bindparams(bindparam("at", type_=UtcDateTime()), bindparam("detail", type_=JSON()))
        for sequence, at, detail in zip((2, 3, 7), times, details, strict=True):
            values = {"s": sequence, "at": at, "actor": f"cli:{sequence}", "detail": detail}
            connection.execute(insertion, values)

    async def verified() -> Report:
        database = Database(empty_database_url)
        async with database.transaction() as tx:
            assert [event.detail for event in await audit.list_events(tx)] == details[::-1]
            await audit.record(tx, actor="cli:9", action="a", subject="b", detail={})
            report = await audit_chain.verify(tx)
        await database.dispose()
        return report

    run(empty_database_url, fill)
    upgrade(empty_database_url)
    assert asyncio.run(verified()) == Report(4, 0, [])
    run(empty_database_url, lambda connection: command.downgrade(_config(connection), "0002"))
    unnumbered = text(
        "INSERT INTO audit_events (at, actor, action, subject, detail)"
        " VALUES (CURRENT_TIMESTAMP, 'cli:old', 'a', 'b', '{}')"
    )
    run(empty_database_url, lambda connection: connection.execute(unnumbered))
    found = run(empty_database_url, lambda c: [tuple(row) for row in c.execute(events)])
    actors = ("cli:2", "cli:3", "cli:7", "cli:9", "cli:old")
    assert found == list(enumerate(actors, 1))


def test_failed_upgrade_leaves_nothing(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a revision fails half way, the database is as it was."""
    from alembic import op

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(op, "bulk_insert", fail)  # the last step of the first revision
        with pytest.raises(ZeroDivisionError):
            upgrade(empty_database_url)
    assert run(empty_database_url, tables) == set()
    assert upgrade(empty_database_url) == head()


def test_newer_database_is_refused(database_url: str) -> None:
    """A database that a newer release made is left alone, and the error says so."""
    newer = text("UPDATE alembic_version SET version_num = '9999'")
    run(database_url, lambda connection: connection.execute(newer))
    with pytest.raises(Conflict, match=r"9999.*newer"):
        upgrade(database_url)
    assert current(database_url) == "9999"


def test_looking_makes_no_file(tmp_path: Path) -> None:
    """Asking for the revision of an SQLite file that is not there does not make it."""
    assert current(f"sqlite:///{tmp_path}/none.db") is None
    assert list(tmp_path.iterdir()) == []


def test_new_file_is_private(tmp_path: Path) -> None:
    """An SQLite database is made, with its directory, for this user only."""
    upgrade(f"sqlite:///{tmp_path}/new/home/saltwall.db")
    made = tmp_path / "new/home/saltwall.db"
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert stat.S_IMODE(made.parent.stat().st_mode) == 0o700


def test_upgrade_needs_no_checkout(tmp_path: Path) -> None:
    """From any directory, with the two packages alone on the path, as installed from a wheel."""
    import saltwall_migrations
    import saltwall_tenants

    for package in (saltwall_migrations, saltwall_tenants):
        source = Path(package.__path__[0])
        shutil.copytree(
            source, tmp_path / "site" / source.name, ignore=shutil.ignore_patterns("__pycache__")
        )
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r});"
        " import saltwall_migrations as m;"
        f" assert m.__file__.startswith({str(tmp_path)!r}), m.__file__;"
        " print(m.upgrade('sqlite:///here.db'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.returncode) == (head(), 0), done.stderr
    assert (tmp_path / "here.db").exists()
