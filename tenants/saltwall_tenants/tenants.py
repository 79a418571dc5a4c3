"""A tenant's life: created, suspended, resumed, deleted."""

from uuid import uuid4

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_tenants import api_keys, audit, changes, quotas, salts
from saltwall_tenants.clock import utc_now
from saltwall_tenants.errors import Conflict, Invalid
from saltwall_tenants.keyring import Keyring
from saltwall_tenants.models import TenantRow, TenantStatus
from saltwall_tenants.registry import (
    Tenant,
    TenantRef,
    get,
    get_live,
    is_name,
    list_all,
)

__all__ = ["Tenant", "TenantRef", "create", "delete", "get", "list_all", "resume", "suspend"]


async def create(tx: AsyncSession, keyring: Keyring, name: str, *, actor: str) -> Tenant:
    """Makes a tenant and its first salt.

    Raises:
        Invalid: not a name.
        Conflict: the name is in use.
    """
    if not is_name(name):
        raise Invalid(
            "a tenant's name is 1 to 63 of a-z, 0-9 and '-', starts with a letter or digit,"
            " and does not look like an id"
        )
    await changes.lock(tx)
    in_use = select(TenantRow.id).where(TenantRow.name == name, TenantRow.status != "deleted")
    if (await tx.execute(in_use)).first():
        raise Conflict(f"tenant {name!r} exists; choose another name")
    tenant = Tenant(id=uuid4(), name=name, status="active", created_at=utc_now())
    await tx.execute(
        insert(TenantRow).values(
            id=tenant.id, name=name, status=tenant.status, created_at=tenant.created_at
        )
    )
    await salts.create_first(tx, keyring, tenant.id)
    await changes.bump(tx, changes.AUTHORISATION)
    await _record(tx, actor, "tenant.create", tenant)
    return tenant


async def suspend(tx: AsyncSession, tenant: TenantRef, *, actor: str) -> Tenant:
    """Stops a tenant at once, its running requests included; again is no change."""
    return await _change_status(tx, tenant, "suspended", actor, "tenant.suspend")


async def resume(tx: AsyncSession, tenant: TenantRef, *, actor: str) -> Tenant:
    """Lets a suspended tenant go on, with the same keys and salts; again is no change."""
    return await _change_status(tx, tenant, "active", actor, "tenant.resume")


async def delete(tx: AsyncSession, tenant: TenantRef, *, actor: str) -> Tenant:
    """Ends a tenant: keys revoked, salts destroyed, its quota's and its name free again.

    Its row stays, for the usage ledger and the audit log. There is no way back.
    """
    await changes.lock(tx)
    found = await get_live(tx, tenant)
    await api_keys.revoke_all(tx, found.id)
    await salts.destroy_all(tx, found.id)
    await quotas.drop(tx, found.id)
    return await _set_status(tx, found, "deleted", actor, "tenant.delete")


async def _change_status(
    tx: AsyncSession, tenant: TenantRef, status: TenantStatus, actor: str, action: str
) -> Tenant:
    await changes.lock(tx)
    found = await get_live(tx, tenant)
    if found.status == status:
        return found
    return await _set_status(tx, found, status, actor, action)


async def _set_status(
    tx: AsyncSession, tenant: Tenant, status: TenantStatus, actor: str, action: str
) -> Tenant:
    await tx.execute(update(TenantRow).where(TenantRow.id == tenant.id).values(status=status))
    await changes.bump(tx, changes.AUTHORISATION)
    await changes.bump(tx, changes.KEYS)
    await _record(tx, actor, action, tenant)
    return Tenant(tenant.id, tenant.name, status, tenant.created_at)


async def _record(tx: AsyncSession, actor: str, action: str, tenant: Tenant) -> None:
    detail = {"name": tenant.name}
    await audit.record(tx, actor=actor, action=action, subject=f"tenant:{tenant.id}", detail=detail)
