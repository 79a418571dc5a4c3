"""A tenant's salt secrets, in generations: pending, current, retiring, revoked."""

import math
import os
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_tenants import audit, changes, envelope
from saltwall_tenants.clock import utc_now
from saltwall_tenants.envelope import Envelope
from saltwall_tenants.errors import Conflict, Invalid, NotFound
from saltwall_tenants.keyring import Keyring
from saltwall_tenants.models import SaltRow, SaltStatus
from saltwall_tenants.registry import TenantRef, get, get_live
from saltwall_tenants.wire.encoding import cbor

SECRET_BYTES = 32
MAX_GRACE = timedelta(days=7)


@dataclass(frozen=True)
class SaltGeneration:
    """One generation; `retire_at` is when a retiring one is revoked."""

    generation: int
    status: SaltStatus
    created_at: datetime
    retire_at: datetime | None = None


@dataclass(frozen=True)
class SaltSecret:
    """The secret of one generation, from which the KV salts of every model are derived."""

    generation: int
    secret: bytes = field(repr=False)


async def create_first(tx: AsyncSession, keyring: Keyring, tenant_id: UUID) -> None:
    """Makes generation 1, current at once; the caller bumps and records."""
    await _insert(tx, keyring, tenant_id, 1, "current", timedelta(0))


async def rotate(
    tx: AsyncSession, keyring: Keyring, tenant: TenantRef, *, grace: timedelta, actor: str
) -> SaltGeneration:
    """Makes the next generation, pending until `promote`.

    Args:
        grace: how long running requests may go on under the old one after that, 0 to 7 days.

    Raises:
        Conflict: a rotation is under way.
    """
    if not timedelta(0) <= grace <= MAX_GRACE:
        raise Invalid(f"the grace is 0 seconds to {MAX_GRACE.days} days")
    await changes.lock(tx)
    found = await get_live(tx, tenant)
    generations = await list_for(tx, found)
    if any(g.status == "pending" for g in generations):
        raise Conflict(
            f"a rotation of {found.name!r} is under way; it ends when every engine knows the new"
            " salt (are all engines up?)"
        )
    fresh = await _insert(tx, keyring, found.id, generations[-1].generation + 1, "pending", grace)
    await changes.bump(tx, changes.AUTHORISATION)
    await _record(tx, actor, "salt.rotate", found.id, fresh.generation)
    return fresh


async def promote(tx: AsyncSession, tenant: TenantRef, generation: int, *, actor: str) -> bool:
    """Makes a pending generation current and lets all older ones retire within its grace.

    Called once every routable engine has acknowledged it, perhaps by several gateways.

    Returns:
        Whether this call did it; False if it is not pending (any more).
    """
    await changes.lock(tx)
    found = await get(tx, tenant)
    pending = select(SaltRow.grace_s).where(
        SaltRow.tenant_id == found.id,
        SaltRow.generation == generation,
        SaltRow.status == "pending",
    )
    grace_s = (await tx.execute(pending)).scalar_one_or_none()
    if grace_s is None:
        return False
    retire_at = utc_now() + timedelta(seconds=grace_s)
    old, new = (
        update(SaltRow).where(SaltRow.tenant_id == found.id, SaltRow.status == status)
        for status in ("current", "pending")
    )
    await tx.execute(old.values(status="retiring", retire_at=retire_at))  # first: one is current
    older = update(SaltRow).where(SaltRow.tenant_id == found.id, SaltRow.status == "retiring")
    await tx.execute(older.where(SaltRow.retire_at > retire_at).values(retire_at=retire_at))
    await tx.execute(new.values(status="current"))
    await changes.bump(tx, changes.AUTHORISATION)
    await _record(tx, actor, "salt.promote", found.id, generation)
    return True


async def expire(tx: AsyncSession, now: datetime, *, actor: str) -> int:
    """Revokes what has retired by `now`, of all tenants, and destroys the secrets; how many."""
    due = select(SaltRow.tenant_id, SaltRow.generation).where(
        SaltRow.status == "retiring", SaltRow.retire_at <= now
    )
    if (await tx.execute(due.limit(1))).first() is None:
        return 0  # the usual case, and gateways ask often: not worth the lock
    await changes.lock(tx)
    expired = (await tx.execute(due.order_by(SaltRow.tenant_id, SaltRow.generation))).all()
    for tenant_id, generation in expired:
        await _destroy(tx, tenant_id, generation)
        await _record(tx, actor, "salt.expire", tenant_id, generation)
    if expired:
        await changes.bump(tx, changes.AUTHORISATION)
    return len(expired)


async def list_for(tx: AsyncSession, tenant: TenantRef) -> list[SaltGeneration]:
    """A tenant's generations, oldest first."""
    found = await get(tx, tenant)
    row = SaltRow
    query = select(row.generation, row.status, row.created_at, row.retire_at)
    rows = await tx.execute(query.where(row.tenant_id == found.id).order_by(row.generation))
    return [SaltGeneration(*generation) for generation in rows]


async def current_secret(tx: AsyncSession, keyring: Keyring, tenant_id: UUID) -> SaltSecret:
    """Opens the secret that new requests use.

    Raises:
        NotFound: the tenant has none: it is deleted, or never was.
        KeyUnavailable: the keyring does not open it.
    """
    row = SaltRow
    query = select(row.generation, row.kek_id, row.wrapped_key, row.sealed)
    query = query.where(row.tenant_id == tenant_id, row.status == "current")
    found: Any = (await tx.execute(query)).one_or_none()
    if found is None:
        raise NotFound(f"tenant {tenant_id} has no current salt; is it deleted?")
    generation, *sealed = found
    secret = envelope.unseal(keyring, _place(tenant_id, generation), Envelope(*sealed))
    return SaltSecret(generation, secret)


async def destroy_all(tx: AsyncSession, tenant_id: UUID) -> None:
    """Revokes every generation of a tenant; the caller bumps and records."""
    await _destroy(tx, tenant_id)


async def _destroy(tx: AsyncSession, tenant_id: UUID, generation: int | None = None) -> None:
    statement = update(SaltRow).where(SaltRow.tenant_id == tenant_id)
    if generation is not None:
        statement = statement.where(SaltRow.generation == generation)
    await tx.execute(statement.values(status="revoked", kek_id=None, wrapped_key=None, sealed=None))


def _place(tenant_id: UUID, generation: int) -> bytes:
    return cbor([SaltRow.__tablename__, tenant_id.bytes, generation])


async def _insert(
    tx: AsyncSession,
    keyring: Keyring,
    tenant_id: UUID,
    generation: int,
    status: SaltStatus,
    grace: timedelta,
) -> SaltGeneration:
    sealed = envelope.seal(keyring, _place(tenant_id, generation), os.urandom(SECRET_BYTES))
    fresh = SaltGeneration(generation, status, utc_now())
    await tx.execute(
        insert(SaltRow).values(
            tenant_id=tenant_id,
            generation=generation,
            status=status,
            kek_id=sealed.kek_id,
            wrapped_key=sealed.wrapped_key,
            sealed=sealed.sealed,
            grace_s=math.ceil(grace.total_seconds()),
            created_at=fresh.created_at,
        )
    )
    return fresh


async def _record(
    tx: AsyncSession, actor: str, action: str, tenant_id: UUID, generation: int
) -> None:
    await audit.record(
        tx,
        actor=actor,
        action=action,
        subject=f"tenant:{tenant_id}",
        detail={"generation": generation},
    )
