"""The audit log is a chain: whatever is done to it afterwards is found, and where."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import delete, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_tenants import audit, audit_chain
from saltwall_tenants.audit import GENESIS, AuditEvent, event_hash
from saltwall_tenants.audit_chain import Entry, Kind, Problem, Report
from saltwall_tenants.audit_checkpoints import SigningKey
from saltwall_tenants.database import Database
from saltwall_tenants.models import AuditEventRow as Row

KEY = SigningKey(b"k" * 32)
NOTE = {"text": "grüße \0 \u2028", "list": [1, None, True, 0.5, 1e300], "nested": {"": {}}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda each: st.lists(each) | st.dictionaries(st.text(), each),
    max_leaves=8,
)


async def act(tx: AsyncSession, number: int) -> None:
    """Records one event."""
    await audit.record(tx, actor=f"cli:{number}", action="a.b", subject="s", detail=NOTE)


@pytest.fixture
async def log(db: Database) -> Database:
    """A log of nine events."""
    async with db.transaction() as tx:
        for number in range(1, 10):
            await act(tx, number)
    return db


async def verified(db: Database, *signed: tuple[int, bytes]) -> Report:
    """What a verification finds, with checkpoints of these positions and hashes."""
    anchor = [KEY.sign(position, head) for position, head in signed]
    async with db.snapshot() as tx:
        return await audit_chain.verify(tx, anchor, KEY.public)


async def head(db: Database) -> tuple[int, bytes]:
    async with db.snapshot() as tx:
        return await audit.head(tx)


async def test_an_untouched_log_is_whole_up_to_its_checkpoint(log: Database) -> None:
    """With the newest checkpoint all is proven, with an older one, or none, the rest is not."""
    signed = await head(log)
    assert await verified(log, signed) == Report(9, 9, [])
    assert (await verified(log)).verdict == "unproven"
    async with log.transaction() as tx:
        await act(tx, 10)
    assert (await verified(log, signed)).verdict == "unproven"
    assert (await verified(log, signed, await head(log))).verdict == "whole"


async def test_rolled_back_events_leave_no_gap(log: Database) -> None:
    """Sequences count what was committed."""
    async with log.transaction() as tx:
        await act(tx, 10)
        await tx.rollback()
    async with log.transaction() as tx:
        await act(tx, 10)
    assert (await verified(log, await head(log))) == Report(10, 10, [])


async def test_events_written_at_once_are_one_chain(log: Database, database_url: str) -> None:
    """By several processes, none of which has taken the lock itself."""
    others = [Database(database_url) for _ in range(4)]

    async def one(database: Database, number: int) -> None:
        async with database.transaction() as tx:
            await act(tx, number)

    await asyncio.gather(*(one(others[i % 4], i) for i in range(12)))
    for database in others:
        await database.dispose()
    assert (await verified(log, await head(log))) == Report(21, 21, [])


async def swap(tx: AsyncSession, one: int, other: int, *, hashes: bool) -> None:
    """Exchanges two events, with the hashes that they had or without."""
    columns = [Row.at, Row.actor, *([Row.hash] if hashes else [])]
    rows = {}
    for sequence in (one, other):
        found = await tx.get(Row, sequence)
        assert found is not None
        rows[sequence] = {column.key: getattr(found, column.key) for column in columns}
    for sequence, values in ((one, rows[other]), (other, rows[one])):
        await tx.execute(update(Row).where(Row.sequence == sequence).values(values))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("at", datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        ("actor", "cli:nobody"),
        ("action", "a.c"),
        ("subject", ""),
        ("detail", NOTE | {"list": [1, None, 1, 0.5, 1e300]}),
        ("hash", bytes(32)),
    ],
)
async def test_an_edit_of_any_column_is_found(log: Database, column: str, value: Any) -> None:
    """At its position; a changed hash also where the next event goes on from it."""
    signed = await head(log)
    async with log.transaction() as tx:
        await tx.execute(update(Row).where(Row.sequence == 4).values({column: value}))
    report = await verified(log, signed)
    assert report.verdict == "tampered"
    assert report.problems[0].position == 4
    assert {p.position for p in report.problems} <= {4, 5}


@pytest.mark.parametrize(
    ("positions", "problem"),
    [((1,), (1, Kind.MISSING)), ((5, 6), (5, Kind.MISSING)), ((9,), (9, Kind.TRUNCATED))],
)
async def test_removed_events_are_found(
    log: Database, positions: Sequence[int], problem: Problem
) -> None:
    """In the middle by themselves, at the end by the checkpoint."""
    signed = await head(log)
    async with log.transaction() as tx:
        await tx.execute(delete(Row).where(Row.sequence.in_(positions)))
    assert list((await verified(log, signed)).problems) == [problem]
    assert (await verified(log)).verdict == ("unproven" if 9 in positions else "tampered")


@pytest.mark.parametrize("hashes", [True, False])
@pytest.mark.parametrize("places", [(3, 4), (2, 7), (8, 9)])
async def test_exchanged_events_are_found(
    log: Database, places: tuple[int, int], hashes: bool
) -> None:
    """As such, whether their hashes moved with them or not."""
    async with log.transaction() as tx:
        await swap(tx, *places, hashes=hashes)
    problems = (await verified(log)).problems
    assert set(places) <= {problem.position for problem in problems}
    assert {problem.kind for problem in problems} == {Kind.REORDERED}


async def test_a_log_that_was_written_anew_is_found_by_its_checkpoint_alone(log: Database) -> None:
    """Its events follow from one another, but they are others."""
    signed = await head(log)
    async with log.transaction() as tx:
        await tx.execute(delete(Row).where(Row.sequence > 6))
        for number in (70, 80, 90, 100):
            await act(tx, number)
    assert (await verified(log)).verdict == "unproven"
    assert list((await verified(log, signed)).problems) == [(9, Kind.REWRITTEN)]
    assert (await verified(log, (0, GENESIS))).verdict == "unproven"


@pytest.mark.parametrize(
    "change", ["detail = '{'", "detail = '[1]'", "\"at\" = 'noon'", "hash = 'x'", "actor = x'ff'"]
)
async def test_what_cannot_be_read_is_an_edit(log: Database, change: str) -> None:
    """And no crash; PostgreSQL's columns refuse most of it."""
    async with log.transaction() as tx:
        if tx.get_bind().dialect.name == "postgresql":
            pytest.skip("its columns hold nothing else")
        damage = f"UPDATE audit_events SET {change} WHERE sequence = 5"  # noqa: S608
        await tx.execute(text(damage))
    report = await verified(log)
    assert report.verdict == "tampered"
    assert Problem(5, Kind.EDITED) in report.problems


@given(st.text(), JSON, JSON)
def test_hashes_differ_where_details_do(actor: str, one: Any, other: Any) -> None:
    """And agree where they agree."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    first, second = (AuditEvent(1, at, actor, "a", "s", {"x": each}) for each in (one, other))
    same = repr(one) == repr(other)
    if same or one != other:
        assert (event_hash(GENESIS, first) == event_hash(GENESIS, second)) is same


def test_an_event_before_the_first_is_found() -> None:
    """Positions begin at 1."""
    event = AuditEvent(0, datetime(2026, 1, 1, tzinfo=UTC), "a", "b", "c", {})
    entry = Entry(0, event, event_hash(GENESIS, event))
    assert [problem.position for problem in audit_chain.broken([entry])] == [0]
