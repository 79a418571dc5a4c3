"""Who is a tenant, and how one is found."""

import re
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_tenants.errors import NotFound
from saltwall_tenants.models import TenantRow, TenantStatus


@dataclass(frozen=True)
class Tenant:
    """A tenant."""

    id: UUID
    name: str
    status: TenantStatus
    created_at: datetime


TenantRef = str | UUID | Tenant
"""A tenant, its id, or its name (the text of an id is an id: names cannot look like one)."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_SELECT = select(TenantRow.id, TenantRow.name, TenantRow.status, TenantRow.created_at)


def is_name(text: str) -> bool:
    """Whether a tenant may be called so."""
    return _NAME.fullmatch(text) is not None and _as_uuid(text) is None


def _as_uuid(text: str) -> UUID | None:
    """The id that a text spells, if it spells one."""
    try:
        return UUID(text)
    except ValueError:
        return None


async def get(tx: AsyncSession, tenant: TenantRef) -> Tenant:
    """Finds a tenant as it is now; a deleted one only by its id.

    Raises:
        NotFound: there is none.
    """
    if isinstance(tenant, Tenant):
        tenant = tenant.id
    wanted = _as_uuid(tenant) if isinstance(tenant, str) else tenant
    if wanted is not None:
        query = _SELECT.where(TenantRow.id == wanted)
    else:
        query = _SELECT.where(TenantRow.name == tenant, TenantRow.status != "deleted")
    findable = wanted is not None or is_name(str(tenant))  # a database chokes on some texts
    row = (await tx.execute(query)).one_or_none() if findable else None
    if row is None:
        raise NotFound(f"there is no tenant {str(tenant)!r}; `saltwall tenant list` shows them")
    return Tenant(*row)


async def get_live(tx: AsyncSession, tenant: TenantRef) -> Tenant:
    """Finds a tenant that is not deleted.

    Raises:
        NotFound: there is none.
    """
    found = await get(tx, tenant)
    if found.status == "deleted":
        raise NotFound(f"tenant {found.name!r} ({found.id}) is deleted; make a new one")
    return found


async def list_all(tx: AsyncSession, *, deleted: bool = False) -> list[Tenant]:
    """All tenants by name; the deleted ones only on request."""
    query = _SELECT.order_by(TenantRow.name, TenantRow.created_at)
    if not deleted:
        query = query.where(TenantRow.status != "deleted")
    return [Tenant(*row) for row in await tx.execute(query)]
