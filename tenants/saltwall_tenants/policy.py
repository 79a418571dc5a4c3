"""What engines are told: which generations of which tenants' salts they accept, and the quotas."""

from collections.abc import Mapping
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_tenants import changes, quotas
from saltwall_tenants.models import SaltRow, TenantRow
from saltwall_tenants.wire import Authorisation, Lease, Policy, Quotas, WireError
from saltwall_tenants.wire.policy import DEFAULT_LEASE_S

_ACTIVE = select(SaltRow.tenant_id, SaltRow.generation).join(
    TenantRow, (TenantRow.id == SaltRow.tenant_id) & (TenantRow.status == "active")
)


async def snapshot(
    tx: AsyncSession,
    name: str,
    *,
    lease_s: int = DEFAULT_LEASE_S,
    earlier: Policy | None = None,
) -> Policy:
    """The document for the engine called `name`; take it in `Database.snapshot`.

    Each epoch and its content are then of one state: an epoch names one content for ever. A stored
    quota that cannot be read takes the place of the quota section, and holds up nothing else.

    Args:
        earlier: this engine's document as it was made last, which is returned again, read and
            encoded, while no epoch has moved.
    """
    epochs = await changes.read(tx)
    if earlier is not None and isinstance(earlier.quotas, Quotas):
        known = earlier.authorisation.epoch, earlier.quotas.epoch
        if known == (epochs[changes.AUTHORISATION], epochs.get(changes.QUOTAS)):
            return earlier
    accepted = _ACTIVE.where(SaltRow.status.in_(("pending", "current", "retiring")))
    tenants: dict[UUID, set[int]] = {}
    for tenant_id, generation in await tx.execute(accepted):
        tenants.setdefault(tenant_id, set()).add(generation)
    generations = {tenant: frozenset(accepted) for tenant, accepted in tenants.items()}
    authorisation = Authorisation(epochs[changes.AUTHORISATION], generations)
    return Policy(name, Lease(lease_s), authorisation, await _quotas(tx, epochs))


async def pending(tx: AsyncSession) -> list[tuple[UUID, int]]:
    """Generations of active tenants that wait for every engine's acknowledgement."""
    rows = await tx.execute(_ACTIVE.where(SaltRow.status == "pending"))
    return [(tenant_id, generation) for tenant_id, generation in rows]


async def _quotas(tx: AsyncSession, epochs: Mapping[str, int]) -> Quotas | WireError | None:
    epoch = epochs.get(changes.QUOTAS)
    if epoch is None:
        return None  # not upgraded yet: a schema without quotas, under a gateway that knows them
    try:
        return Quotas(epoch, {each.tenant_id: each.quota for each in await quotas.list_all(tx)})
    except WireError as error:
        return error
