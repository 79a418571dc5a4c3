"""The usage ledger: what each request used, counted once."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_tenants.models import UsageRow


@dataclass(frozen=True)
class UsageRecord:
    """One settled request; `status` is its HTTP status, 499 when the client went away."""

    request_id: str
    tenant_id: UUID
    key_id: str
    model: str
    route: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    status: int
    started_at: datetime
    duration_s: float


@dataclass(frozen=True)
class UsageTotals:
    """A tenant's sums; `cached_tokens` are part of `prompt_tokens`."""

    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


async def record(tx: AsyncSession, records: Sequence[UsageRecord]) -> None:
    """Adds records; one whose request is in the ledger already is not counted again."""
    if not records:
        return
    dialect = sqlite if tx.get_bind().dialect.name == "sqlite" else postgresql
    statement = dialect.insert(UsageRow).on_conflict_do_nothing(index_elements=["request_id"])
    rows = sorted(records, key=lambda row: row.request_id)  # two gateways must not deadlock
    await tx.execute(statement, [asdict(row) for row in rows])


async def totals(tx: AsyncSession, tenant_id: UUID) -> UsageTotals:
    """What a tenant has used."""
    row = UsageRow
    sums = (func.sum(c) for c in (row.prompt_tokens, row.cached_tokens, row.completion_tokens))
    query = select(func.count(), *sums).where(row.tenant_id == tenant_id)
    requests, *tokens = (await tx.execute(query)).one()
    return UsageTotals(requests, *(int(total or 0) for total in tokens))
