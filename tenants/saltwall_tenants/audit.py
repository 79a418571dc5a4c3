"""The audit log: who changed what, written in the transaction that changed it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_tenants.clock import utc_now
from saltwall_tenants.models import AuditEventRow


@dataclass(frozen=True)
class AuditEvent:
    """One act; `detail` holds no secret."""

    sequence: int
    at: datetime
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]


async def record(
    tx: AsyncSession, *, actor: str, action: str, subject: str, detail: dict[str, Any]
) -> None:
    """Adds an event.

    Args:
        actor: who did it, such as `cli:root` or `gateway`.
        action: what, such as `tenant.suspend`.
        subject: to what, such as `tenant:acme`.
        detail: JSON values that an auditor needs besides; never a secret.
    """
    event = {"actor": actor, "action": action, "subject": subject, "detail": detail}
    await tx.execute(insert(AuditEventRow).values(at=utc_now(), **event))


async def list_events(tx: AsyncSession, *, limit: int = 100) -> list[AuditEvent]:
    """The newest events, newest first."""
    row = AuditEventRow
    query = select(row.sequence, row.at, row.actor, row.action, row.subject, row.detail)
    rows = await tx.execute(query.order_by(row.sequence.desc()).limit(limit))
    return [AuditEvent(*event) for event in rows]
