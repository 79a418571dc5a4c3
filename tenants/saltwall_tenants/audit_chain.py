"""Whether the audit log is as it was written: its chain, and what signed checkpoints say of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import Select, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_tenants.audit import GENESIS, AuditEvent, event_hash
from saltwall_tenants.audit_checkpoints import Checkpoint
from saltwall_tenants.models import AuditEventRow

_COMPARED = 8
"""Up to so many events that do not fit are tried in each other's places."""


class Kind(StrEnum):
    """What is wrong at a position of the log."""

    EDITED = "edited"
    MISSING = "missing"
    REORDERED = "reordered"
    TRUNCATED = "truncated"
    """It ends before the event of a checkpoint."""
    REWRITTEN = "rewritten"
    """Its events follow from one another, but are not those that a checkpoint was made of."""
    BAD_SIGNATURE = "bad signature"
    FOREIGN = "another log"
    """A checkpoint by another key than this log's."""


class Problem(NamedTuple):
    """What is wrong, and where."""

    position: int
    kind: Kind


@dataclass(frozen=True)
class Report:
    """What a verification found. The first `proven` of `events` are as they were signed."""

    events: int
    proven: int
    problems: Sequence[Problem]

    @property
    def verdict(self) -> str:
        """Whether the log is "tampered", "unproven" from somewhere on, or "whole"."""
        if self.problems:
            return "tampered"
        return "whole" if self.proven == self.events else "unproven"


class Entry(NamedTuple):
    """A row of the log; `event` is None if it cannot be read as one."""

    sequence: int
    event: AuditEvent | None
    hash: bytes


async def verify(tx: AsyncSession, anchor: Sequence[Checkpoint] = (), key: bytes = b"") -> Report:
    """Checks the log against itself and against checkpoints; reads all of it.

    Args:
        anchor: the newest checkpoint proves the most.
        key: the public key that must have signed them (32 bytes).
    """
    entries = await _entries(tx)
    hashes = {0: GENESIS, **{entry.sequence: entry.hash for entry in entries}}
    problems = broken(entries) + contradicted(hashes, anchor, key)
    signed = [each.position for each in anchor]
    return Report(len(entries), 0 if problems else max(signed, default=0), problems)


def broken(entries: Sequence[Entry]) -> list[Problem]:
    """Where the chain is broken, by itself."""
    problems: list[Problem] = []
    unfit: list[Entry] = []
    before = [GENESIS]
    previous = Entry(0, None, GENESIS)
    for entry in entries:
        if entry.sequence > previous.sequence + 1:  # what follows a gap cannot be checked
            problems.append(Problem(previous.sequence + 1, Kind.MISSING))
        elif entry.sequence < 1 or not _follows(entry.event, [previous.hash], [entry.hash]):
            unfit.append(entry)
            before += [previous.hash, entry.hash]
        previous = entry
    places = [entry.sequence for entry in unfit]
    for entry in unfit:
        moved = len(unfit) <= _COMPARED and _fits(entry.event, places, before)
        problems.append(Problem(entry.sequence, Kind.REORDERED if moved else Kind.EDITED))
    return sorted(problems)


def contradicted(
    hashes: Mapping[int, bytes], anchor: Sequence[Checkpoint], key: bytes
) -> list[Problem]:
    """Where the log, by the hash at each position, is not what the checkpoints were made of."""
    problems = []
    for checkpoint in anchor:
        if not checkpoint.is_genuine():
            problems.append(Problem(checkpoint.position, Kind.BAD_SIGNATURE))
        elif checkpoint.key != key:
            problems.append(Problem(checkpoint.position, Kind.FOREIGN))
        elif checkpoint.position > max(hashes):
            problems.append(Problem(checkpoint.position, Kind.TRUNCATED))
        elif hashes.get(checkpoint.position) != checkpoint.hash:
            problems.append(Problem(checkpoint.position, Kind.REWRITTEN))
    return problems


def _fits(event: AuditEvent | None, places: Sequence[int], known: Sequence[bytes]) -> bool:
    """Whether an event's hash is among those known, at one of the places, after one of them."""
    if event is None:
        return False
    return any(_follows(replace(event, sequence=place), known, known) for place in places)


def _follows(event: AuditEvent | None, before: Sequence[bytes], hashes: Sequence[bytes]) -> bool:
    """Whether one of these is the event's hash after one of those."""
    try:
        return event is not None and any(event_hash(each, event) in hashes for each in before)
    except Exception:  # what cannot be hashed was never written by us
        return False


async def _entries(tx: AsyncSession) -> list[Entry]:
    row = AuditEventRow
    columns = (row.sequence, row.at, row.actor, row.action, row.subject, row.detail, row.hash)
    query = select(*columns).order_by(row.sequence)
    try:
        return [Entry(r.sequence, AuditEvent(*r[:6]), r.hash) for r in await tx.execute(query)]
    except SQLAlchemyError:
        raise
    except Exception:  # a value that its column never holds was written from outside
        sequences = list(await tx.scalars(select(row.sequence).order_by(row.sequence)))
    return [await _entry(tx, query, sequence) for sequence in sequences]


async def _entry(tx: AsyncSession, query: Select[Any], sequence: int) -> Entry:
    try:
        r = (await tx.execute(query.where(AuditEventRow.sequence == sequence))).one()
        return Entry(sequence, AuditEvent(*r[:6]), r.hash)
    except SQLAlchemyError:
        raise
    except Exception:
        return Entry(sequence, None, b"")
