"""Tenants' quotas: what each may hold of every engine's KV cache."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import Row, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_tenants import audit, changes
from saltwall_tenants.clock import utc_now
from saltwall_tenants.errors import Conflict
from saltwall_tenants.models import QuotaRow, TenantRow
from saltwall_tenants.registry import Tenant, TenantRef, get_live
from saltwall_tenants.wire import AmountError, Capacity, Quota, Unit
from saltwall_tenants.wire.amount import plain
from saltwall_tenants.wire.quota import largest

DEFAULT = Quota()
"""Of every tenant that has no other: nothing reserved, no ceiling, weight 1, cached."""

_FIELDS = ("reserve", "ceiling", "weight", "strict", "store")
_COLUMNS = tuple(getattr(QuotaRow, name) for name in _FIELDS)


@dataclass(frozen=True)
class TenantQuota:
    """A tenant with the quota that is stored for it."""

    tenant_id: UUID
    tenant_name: str
    quota: Quota


async def set_quota(
    tx: AsyncSession,
    tenant: TenantRef,
    quota: Quota,
    *,
    engines: Mapping[str, Capacity] | None = None,
    actor: str,
) -> Quota:
    """Stores a tenant's quota, whole; the same again is no change.

    Args:
        engines: the capacity of each engine that could be asked, by its label. Reserves in other
            units than per cent can be added up on those alone; the others check for themselves.

    Raises:
        Conflict: together with the other tenants' it would reserve more than there is.
    """
    await changes.lock(tx)
    found = await get_live(tx, tenant)
    stored = {each.tenant_name: each.quota for each in await list_all(tx)}
    before = stored.pop(found.name, None)
    if before == quota:
        return quota
    wanted = _Change(found.name, before or DEFAULT, quota, stored)
    wanted.check_percent()
    for label, capacity in (engines or {}).items():
        wanted.check_blocks(label, capacity)
    values = {**quota.document(), "updated_at": utc_now()}
    if before is not None:
        change = update(QuotaRow).where(QuotaRow.tenant_id == found.id).values(values)
        await tx.execute(change)
    else:
        await tx.execute(insert(QuotaRow).values(tenant_id=found.id, **values))
    await changes.bump(tx, changes.QUOTAS)
    was = None if before is None else before.document()
    await _record(tx, actor, "quota.set", found, {"before": was, "after": quota.document()})
    return quota


async def clear_quota(tx: AsyncSession, tenant: TenantRef, *, actor: str) -> bool:
    """Gives a tenant the default quota again; whether it had another."""
    await changes.lock(tx)
    found = await get_live(tx, tenant)
    before = await get_quota(tx, found)
    if before is None:
        return False
    await drop(tx, found.id)
    await _record(tx, actor, "quota.clear", found, {"before": before.document()})
    return True


async def get_quota(tx: AsyncSession, tenant: TenantRef) -> Quota | None:
    """What is stored for a tenant; None for the default."""
    found = await get_live(tx, tenant)
    query = select(*_COLUMNS).where(QuotaRow.tenant_id == found.id)
    row = (await tx.execute(query)).one_or_none()
    return None if row is None else _quota(row)


async def list_all(tx: AsyncSession) -> list[TenantQuota]:
    """Every stored quota, by the tenant's name; suspended tenants keep theirs."""
    query = select(TenantRow.id, TenantRow.name, *_COLUMNS)
    query = query.join(QuotaRow, TenantRow.id == QuotaRow.tenant_id)
    query = query.where(TenantRow.status != "deleted").order_by(TenantRow.name)
    rows = await tx.execute(query)
    return [TenantQuota(row.id, row.name, _quota(row)) for row in rows]


async def drop(tx: AsyncSession, tenant_id: UUID) -> None:
    """Removes what is stored for a tenant, if anything; the caller records."""
    removal = delete(QuotaRow).where(QuotaRow.tenant_id == tenant_id)
    if (await tx.execute(removal.returning(QuotaRow.tenant_id))).first() is not None:
        await changes.bump(tx, changes.QUOTAS)


def _quota(row: Row[Any]) -> Quota:
    return Quota.of({name: getattr(row, name) for name in _FIELDS})


@dataclass(frozen=True)
class _Change:
    """A quota that is about to be stored, and those of the other tenants.

    What lowers a reserve is always allowed: it is how an engine that has shrunk is put right.
    """

    tenant: str
    before: Quota
    after: Quota
    others: Mapping[str, Quota]

    def check_percent(self) -> None:
        """Raises:
        Conflict: the reserves in per cent are more than all, on any engine.
        """
        others = {name: _percent(quota) for name, quota in self.others.items()}
        taken, mine = sum(others.values(), Decimal(0)), _percent(self.after)
        if mine > _percent(self.before) and taken + mine > 100:
            raise Conflict(
                f"reserves would add up to {plain(taken + mine)}% of 100%:"
                f" {largest({self.tenant: mine, **others}, '%')};"
                f" free for {self.tenant}: {plain(max(100 - taken, Decimal(0)))}%"
            )

    def check_blocks(self, engine: str, capacity: Capacity) -> None:
        """Raises:
        Conflict: the reserves are more than this engine has, or the quota cannot be kept there.
        """
        try:
            mine = self.after.blocks(capacity).reserve
            others = {name: q.reserve.blocks(capacity) for name, q in self.others.items()}
            raised = mine > self.before.reserve.blocks(capacity)
        except AmountError as error:
            raise Conflict(f"on engine {engine}: {error}") from None
        taken = sum(others.values())
        if raised and taken + mine > capacity.blocks:
            raise Conflict(
                f"reserves would add up to {taken + mine} of {capacity.blocks} blocks on engine"
                f" {engine}: {largest({self.tenant: mine, **others})};"
                f" free for {self.tenant}: {max(capacity.blocks - taken, 0)}"
            )


def _percent(quota: Quota) -> Decimal:
    return quota.reserve.value if quota.reserve.unit is Unit.PERCENT else Decimal(0)


async def _record(
    tx: AsyncSession, actor: str, action: str, tenant: Tenant, detail: dict[str, Any]
) -> None:
    subject = f"tenant:{tenant.id}"
    await audit.record(tx, actor=actor, action=action, subject=subject, detail=detail)
