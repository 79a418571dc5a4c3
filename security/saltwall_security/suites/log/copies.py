"""Copies of the audited database, and what somebody who can write to one does to its log."""

import json
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from saltwall_security.suites.log import chain
from saltwall_security.suites.secrecy import places

HAS_LOG = "SELECT count(hash) FROM audit_events"
OF = "SELECT sequence FROM audit_events WHERE subject || detail LIKE ? ORDER BY sequence"
FIELDS = ("at", "actor", "action", "subject", "detail")


def find(files: Sequence[Path]) -> Path | None:
    """The SQLite database with an audit log among the files that were given."""
    for path in places.files(files):
        with suppress(sqlite3.Error):
            if places.is_database(path) and not path.name.endswith(places.DATABASE_ENDS):
                with closing(_reader(path)) as source:
                    source.execute(HAS_LOG)
                return path
    return None


def copy(source: Path, to: Path) -> None:
    """A consistent copy of a database that others write to; the source is only read."""
    with closing(_reader(source)) as live, closing(sqlite3.connect(to)) as made:
        live.backup(made)


def size(database: Path) -> int:
    """Bytes of a database, with what has not been written into it yet."""
    wal = database.with_name(f"{database.name}-wal")
    return sum(path.stat().st_size for path in (database, wal) if path.exists())


@contextmanager
def temporary(genuine: Path, directory: Path) -> Iterator[Path]:
    """A copy of a file that nobody uses; it is gone at the end of the block, and what is beside it.

    Args:
        directory: is made for it.
    """
    directory.mkdir()
    try:
        shutil.copy(genuine, directory / "copy.db")
        yield directory / "copy.db"
    finally:
        shutil.rmtree(directory)


def of_tenant(database: Path, tenant_id: str) -> list[int]:
    """The positions of the events about a tenant."""
    with closing(_reader(database)) as connection:
        return [row[0] for row in connection.execute(OF, (f"%{tenant_id}%",))]


@contextmanager
def writing(copied: Path) -> Iterator[sqlite3.Connection]:
    """One transaction on a copy."""
    with closing(sqlite3.connect(copied)) as connection, connection:
        yield connection


def edit(log: sqlite3.Connection, own: Sequence[int]) -> list[int]:
    """Changes one field each of as many events; returns where."""
    for position, field in zip(own, FIELDS, strict=False):
        (old,) = log.execute(
            f"SELECT {field} FROM audit_events WHERE sequence = ?",  # noqa: S608
            (position,),
        ).fetchone()
        new = json.dumps({**json.loads(old), "approved": True}) if field == "detail" else _next(old)
        change = f"UPDATE audit_events SET {field} = ? WHERE sequence = ?"  # noqa: S608
        log.execute(change, (new, position))
    return list(own[: len(FIELDS)])


def delete(log: sqlite3.Connection, own: Sequence[int]) -> list[int]:
    """Removes an event in the middle."""
    log.execute("DELETE FROM audit_events WHERE sequence = ?", (own[3],))
    return [own[3]]


def close_up(log: sqlite3.Connection, own: Sequence[int]) -> list[int]:
    """Removes an event in the middle, and moves those after it up."""
    delete(log, own)
    after = "SELECT sequence FROM audit_events WHERE sequence > ? ORDER BY sequence"
    for (position,) in log.execute(after, (own[3],)).fetchall():
        log.execute(
            "UPDATE audit_events SET sequence = ? WHERE sequence = ?", (position - 1, position)
        )
    return [own[3]]


def reorder(log: sqlite3.Connection, own: Sequence[int]) -> list[int]:
    """Exchanges two events."""
    one, other = own[1], own[3]
    for old, new in ((one, 0), (other, one), (0, other)):
        log.execute("UPDATE audit_events SET sequence = ? WHERE sequence = ?", (new, old))
    return [one, other]


def truncate(log: sqlite3.Connection, own: Sequence[int]) -> list[int]:
    """Removes the newest events."""
    log.execute("DELETE FROM audit_events WHERE sequence >= ?", (own[-2],))
    return []


def rewrite(log: sqlite3.Connection, own: Sequence[int]) -> list[int]:
    """Changes an event, and computes all hashes anew."""
    log.execute("UPDATE audit_events SET actor = 'nobody' WHERE sequence = ?", (own[2],))
    chain.relink(log, own[2])
    return []


def append(log: sqlite3.Connection, own: Sequence[int]) -> list[int]:
    """Adds an event that never was, with the right hash."""
    fields = ", ".join(FIELDS)
    (last,) = log.execute("SELECT max(sequence) FROM audit_events").fetchone()
    added = f"INSERT INTO audit_events (sequence, {fields}, hash) SELECT ?, {fields}, x'00'"
    log.execute(f"{added} FROM audit_events WHERE sequence = ?", (last + 1, own[0]))
    chain.relink(log, last + 1)
    return []


def _next(text: str) -> str:
    """Something else of the same form: its last digit or letter is another."""
    return text[:-1] + ("1" if text[-1] == "0" else "0")


def _reader(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
