"""The audit log: who changed what, written in the transaction that changed it, as a hash chain."""

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_tenants import changes
from saltwall_tenants.clock import utc_now
from saltwall_tenants.models import AuditEventRow
from saltwall_tenants.wire.encoding import cbor

GENESIS = bytes(32)
"""What the first event's hash begins with, and the hash of a log without events."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class AuditEvent:
    """One act; `detail` holds no secret. Sequences are 1, 2, 3, ..., without a gap."""

    sequence: int
    at: datetime
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]


def microseconds(at: datetime) -> int:
    """A time as it is hashed: microseconds since 1970."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def event_hash(previous: bytes, event: AuditEvent) -> bytes:
    """SHA-256 over canonical CBOR: each event's hash covers it and, through `previous`, all before.

    Migration 0003 has the same of its own: another format is another version, and a migration.
    """
    fields = [event.actor, event.action, event.subject, event.detail]
    start = ["saltwall/audit-event/1", previous, event.sequence, microseconds(event.at)]
    return hashlib.sha256(cbor([*start, *fields])).digest()


async def record(
    tx: AsyncSession, *, actor: str, action: str, subject: str, detail: dict[str, Any]
) -> None:
    """Adds an event, as the next in the chain.

    Args:
        actor: who did it, such as `cli:root` or `gateway`.
        action: what, such as `tenant.suspend`.
        subject: to what, such as `tenant:acme`.
        detail: JSON values that an auditor needs besides; never a secret.
    """
    await changes.lock(tx)  # nobody else adds one until this transaction ends
    last, previous = await head(tx)
    kept = json.loads(json.dumps(detail))  # hashed as it will be read
    event = AuditEvent(last + 1, utc_now(), actor, action, subject, kept)
    row = {**vars(event), "hash": event_hash(previous, event)}
    await tx.execute(insert(AuditEventRow).values(row))


async def head(tx: AsyncSession) -> tuple[int, bytes]:
    """The newest event's sequence and hash; 0 and `GENESIS` without one."""
    query = select(AuditEventRow.sequence, AuditEventRow.hash)
    newest = query.order_by(AuditEventRow.sequence.desc()).limit(1)
    row = (await tx.execute(newest)).one_or_none()
    return (0, GENESIS) if row is None else (row.sequence, row.hash)


async def list_events(tx: AsyncSession, *, limit: int = 100) -> list[AuditEvent]:
    """The newest events, newest first."""
    row = AuditEventRow
    query = select(row.sequence, row.at, row.actor, row.action, row.subject, row.detail)
    rows = await tx.execute(query.order_by(row.sequence.desc()).limit(limit))
    return [AuditEvent(*event) for event in rows]
