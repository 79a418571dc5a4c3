"""The usage ledger counts every request once."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from saltwall_tenants import tenants, usage
from saltwall_tenants.database import Database
from saltwall_tenants.keyring import Keyring
from saltwall_tenants.models import UsageRow
from saltwall_tenants.tenants import Tenant
from saltwall_tenants.usage import UsageRecord, UsageTotals


def spent(request_id: str, tenant_id: UUID) -> UsageRecord:
    """A request of 10 prompt tokens, 4 of them cached, and 3 more."""
    return UsageRecord(
        request_id=request_id,
        tenant_id=tenant_id,
        key_id="aaaaaaaaaaaa",
        model="demo",
        route="/v1/completions",
        prompt_tokens=10,
        cached_tokens=4,
        completion_tokens=3,
        status=200,
        started_at=datetime(2026, 5, 1, tzinfo=UTC),
        duration_s=0.25,
    )


async def test_totals_add_up(db: Database, acme: Tenant) -> None:
    """Totals are the sums over a tenant's requests; none is nought."""
    async with db.transaction() as tx:
        assert await usage.totals(tx, acme.id) == UsageTotals(0, 0, 0, 0)
        await usage.record(tx, [spent(f"r{i}", acme.id) for i in range(3)])
        assert await usage.totals(tx, acme.id) == UsageTotals(3, 30, 12, 9)


async def test_request_counts_once(db: Database, acme: Tenant) -> None:
    """A request recorded again, in one call or later, by whomever, is not counted again."""
    record = spent("r1", acme.id)
    for records in ([record, record], [record], [replace(record, prompt_tokens=99)]):
        async with db.transaction() as tx:
            await usage.record(tx, records)
    async with db.snapshot() as tx:
        assert await usage.totals(tx, acme.id) == UsageTotals(1, 10, 4, 3)


async def test_record_is_kept_whole(db: Database, acme: Tenant) -> None:
    """Every field comes back as it went in, beyond 32 bits too."""
    record = replace(spent("r1", acme.id), prompt_tokens=2**40, status=499)
    async with db.transaction() as tx:
        await usage.record(tx, [record])
        row = (await tx.execute(select(UsageRow.__table__))).one()
        assert UsageRecord(**row._mapping) == record
        assert (await usage.totals(tx, acme.id)).prompt_tokens == 2**40


async def test_tenants_are_counted_apart(db: Database, keyring: Keyring, acme: Tenant) -> None:
    """One tenant's requests are in no other's totals."""
    async with db.transaction() as tx:
        globex = await tenants.create(tx, keyring, "globex", actor="cli:test")
        await usage.record(tx, [spent("r1", acme.id)])
        assert await usage.totals(tx, globex.id) == UsageTotals(0, 0, 0, 0)


async def test_nothing_is_no_statement(db: Database) -> None:
    """An empty batch is fine."""
    async with db.transaction() as tx:
        await usage.record(tx, [])


async def test_usage_belongs_to_a_tenant(db: Database) -> None:
    """Usage of nobody is refused."""

    async def record_for_nobody() -> None:
        async with db.transaction() as tx:
            await usage.record(tx, [spent("r1", uuid4())])

    with pytest.raises(IntegrityError):
        await record_for_nobody()


async def test_deleted_tenant_can_still_be_charged(db: Database, acme: Tenant) -> None:
    """A request that was running when its tenant was deleted is still settled."""
    async with db.transaction() as tx:
        await tenants.delete(tx, acme, actor="cli:test")
        await usage.record(tx, [spent("r1", acme.id)])
        assert (await usage.totals(tx, acme.id)).requests == 1
