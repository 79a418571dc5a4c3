"""The policy document: of one state, so that an epoch names one content."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import text, update

from saltwall_tenants import changes, policy, quotas, salts, tenants
from saltwall_tenants.database import Database
from saltwall_tenants.keyring import Keyring
from saltwall_tenants.models import QuotaRow
from saltwall_tenants.tenants import Tenant
from saltwall_tenants.wire import Amount, Policy, Quota, Quotas, WireError

ACTOR = "cli:test"


async def test_document_holds_active_tenants_only(
    db: Database, keyring: Keyring, acme: Tenant
) -> None:
    """Suspended and deleted tenants, and revoked generations, are absent."""
    async with db.transaction() as tx:
        for name in ("suspended", "deleted"):
            await tenants.create(tx, keyring, name, actor=ACTOR)
        await tenants.suspend(tx, "suspended", actor=ACTOR)
        await tenants.delete(tx, "deleted", actor=ACTOR)
        await salts.rotate(tx, keyring, acme, grace=timedelta(0), actor=ACTOR)
        await salts.promote(tx, acme, 2, actor=ACTOR)
        await salts.expire(tx, datetime.now(UTC), actor=ACTOR)
    async with db.snapshot() as tx:
        assert (await policy.snapshot(tx, "demo")).authorisation.tenants == {acme.id: {2}}


async def test_document_survives_the_wire(db: Database, acme: Tenant) -> None:
    """What the database gives, engines can read, from the first migration on."""
    async with db.transaction() as tx:
        await quotas.set_quota(tx, acme, Quota(Amount.parse("30%")), actor=ACTOR)
    async with db.snapshot() as tx:
        document = await policy.snapshot(tx, "demo", lease_s=30)
        assert document.authorisation.epoch == (await changes.read(tx))["authorisation"]
    assert Policy.decode(document.encode(), "demo") == document
    assert document.lease.seconds == 30


async def test_empty_database_has_a_document(db: Database) -> None:
    """Without any tenant the policy is empty and still valid: it refuses everyone."""
    async with db.snapshot() as tx:
        document = await policy.snapshot(tx, "demo")
    assert Policy.decode(document.encode(), "demo").authorisation.tenants == {}


async def test_epoch_and_content_are_of_one_state(
    db: Database, keyring: Keyring, acme: Tenant
) -> None:
    """A change that commits between two reads of a snapshot shows in neither part of it."""
    async with db.snapshot() as reader:
        epoch = (await changes.read(reader))["authorisation"]
        async with db.transaction() as tx:
            await tenants.create(tx, keyring, "globex", actor=ACTOR)
        document = await policy.snapshot(reader, "demo")
    assert document.authorisation.epoch == epoch
    assert set(document.authorisation.tenants) == {acme.id}


async def test_document_holds_the_quotas_of_all_who_are_not_deleted(
    db: Database, keyring: Keyring, acme: Tenant
) -> None:
    """A suspended tenant's reserve stays its own; a deleted one's is free, under a new epoch."""
    quota = Quota(Amount.parse("30%"))
    async with db.transaction() as tx:
        for name in ("suspended", "deleted"):
            made = await tenants.create(tx, keyring, name, actor=ACTOR)
            await quotas.set_quota(tx, made, quota, actor=ACTOR)
        suspended = await tenants.suspend(tx, "suspended", actor=ACTOR)
        await quotas.set_quota(tx, acme, quota, actor=ACTOR)
    async with db.snapshot() as tx:
        before = (await policy.snapshot(tx, "demo")).quotas
    async with db.transaction() as tx:
        await tenants.delete(tx, "deleted", actor=ACTOR)
    async with db.snapshot() as tx:
        after = (await policy.snapshot(tx, "demo")).quotas
        epoch = (await changes.read(tx))["quotas"]
    assert isinstance(before, Quotas)
    assert isinstance(after, Quotas)
    assert len(before.tenants) == 3
    assert after.tenants == {acme.id: quota, suspended.id: quota}
    assert after.epoch == epoch > before.epoch


async def test_a_deletion_without_a_quota_moves_no_quotas(
    db: Database, keyring: Keyring, acme: Tenant
) -> None:
    """One epoch, one content: engines are not told of quotas that did not change."""
    async with db.transaction() as tx:
        before = (await changes.read(tx))["quotas"]
        await tenants.delete(tx, acme, actor=ACTOR)
        assert (await changes.read(tx))["quotas"] == before


async def test_a_stored_quota_that_cannot_be_read_holds_up_nothing_else(
    db: Database, acme: Tenant
) -> None:
    """Somebody edited the table: who may use the engine is still told, and the error besides."""
    async with db.transaction() as tx:
        await quotas.set_quota(tx, acme, Quota(Amount.parse("30%")), actor=ACTOR)
        await tx.execute(update(QuotaRow).values(reserve="a lot"))
    async with db.snapshot() as tx:
        document = await policy.snapshot(tx, "demo")
    assert isinstance(document.quotas, WireError)
    assert Policy.decode(document.encode(), "demo").authorisation.tenants == {acme.id: {1}}


async def test_a_document_is_made_anew_only_when_an_epoch_has_moved(
    db: Database, keyring: Keyring, acme: Tenant
) -> None:
    """Leases are renewed all the time; a change of either section is always seen."""
    async with db.snapshot() as tx:
        first = await policy.snapshot(tx, "demo")
        assert await policy.snapshot(tx, "demo", earlier=first) is first
    async with db.transaction() as tx:
        await quotas.set_quota(tx, acme, Quota(Amount.parse("30%")), actor=ACTOR)
    async with db.snapshot() as tx:
        second = await policy.snapshot(tx, "demo", earlier=first)
        assert second == await policy.snapshot(tx, "demo") != first
    async with db.transaction() as tx:
        await tenants.create(tx, keyring, "globex", actor=ACTOR)
    async with db.snapshot() as tx:
        third = await policy.snapshot(tx, "demo", earlier=second)
        assert third == await policy.snapshot(tx, "demo") != second


async def test_an_unreadable_quota_is_looked_at_every_time(db: Database, acme: Tenant) -> None:
    """Whoever mends the table by hand moves no epoch."""
    async with db.transaction() as tx:
        await quotas.set_quota(tx, acme, Quota(Amount.parse("30%")), actor=ACTOR)
        await tx.execute(update(QuotaRow).values(reserve="a lot"))
        spoilt = await policy.snapshot(tx, "demo")
        await tx.execute(update(QuotaRow).values(reserve="30%"))
        mended = await policy.snapshot(tx, "demo", earlier=spoilt)
    assert isinstance(mended.quotas, Quotas)


async def test_a_database_of_the_release_before_still_has_a_document(
    db: Database, acme: Tenant
) -> None:
    """A gateway that was upgraded before its database goes on; there are no quotas to send."""
    async with db.transaction() as tx:
        await tx.execute(text("DROP TABLE quotas"))
        await tx.execute(text("DELETE FROM changes WHERE section = 'quotas'"))
    async with db.snapshot() as tx:
        document = await policy.snapshot(tx, "demo")
        assert await policy.snapshot(tx, "demo", earlier=document) == document
    assert document.quotas is None
    assert document.authorisation.tenants == {acme.id: {1}}
