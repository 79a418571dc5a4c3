"""Quotas are stored whole, one a tenant, and only when all reserves together are there."""

from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import update

from saltwall_tenants import audit, changes, quotas, tenants
from saltwall_tenants.database import Database
from saltwall_tenants.errors import Conflict, NotFound
from saltwall_tenants.keyring import Keyring
from saltwall_tenants.models import QuotaRow
from saltwall_tenants.tenants import Tenant
from saltwall_tenants.wire import Amount, Capacity, Quota

ACTOR = "cli:test"
DEMO = Capacity(blocks=320, block_tokens=32, block_bytes=2**20)


def quota(reserve: str = "0", ceiling: str | None = None, **fields: Any) -> Quota:
    """A quota of written amounts."""
    return Quota(Amount.parse(reserve), ceiling and Amount.parse(ceiling), **fields)  # type: ignore[arg-type]


@pytest.fixture
async def globex(db: Database, keyring: Keyring, acme: Tenant) -> Tenant:
    """Another tenant."""
    async with db.transaction() as tx:
        return await tenants.create(tx, keyring, "globex", actor=ACTOR)


@pytest.mark.parametrize(
    "stored",
    [
        quota(),
        quota("30%", "50%", weight=Decimal("2.5")),
        quota("12.345678%", strict=True),
        quota("2.5GiB", "4096 tokens", store=False),
        quota("120", weight=Decimal("0.01")),
    ],
    ids=str,
)
async def test_a_quota_is_stored_exactly(db: Database, acme: Tenant, stored: Quota) -> None:
    """What was set is what is read, to the last decimal, and its epoch moved."""
    async with db.transaction() as tx:
        assert await quotas.get_quota(tx, acme) is None
        before = (await changes.read(tx))["quotas"]
        assert await quotas.set_quota(tx, "acme", stored, actor=ACTOR) == stored
        assert (await changes.read(tx))["quotas"] > before
    async with db.snapshot() as tx:
        assert await quotas.get_quota(tx, acme) == stored
        (listed,) = await quotas.list_all(tx)
    assert (listed.tenant_id, listed.tenant_name, listed.quota) == (acme.id, "acme", stored)


async def test_setting_replaces_and_says_what_was(db: Database, acme: Tenant) -> None:
    """One quota a tenant; the event holds both."""
    async with db.transaction() as tx:
        await quotas.set_quota(tx, acme, quota("30%"), actor=ACTOR)
        await quotas.set_quota(tx, acme, quota("20%", weight=Decimal(2)), actor=ACTOR)
        assert len(await quotas.list_all(tx)) == 1
        event, *_ = await audit.list_events(tx)
    assert event.detail["before"]["reserve"] == "30%"
    assert (event.detail["after"]["reserve"], event.detail["after"]["weight"]) == ("20%", "2")


async def test_the_same_again_is_no_change(db: Database, acme: Tenant) -> None:
    """No event, no epoch; nor for clearing what is not there."""
    async with db.transaction() as tx:
        await quotas.set_quota(tx, acme, quota("30%"), actor=ACTOR)
        before = await changes.read(tx), await audit.list_events(tx)
        await quotas.set_quota(tx, acme, quota("30%"), actor=ACTOR)
        assert (await changes.read(tx), await audit.list_events(tx)) == before
        assert await quotas.clear_quota(tx, acme, actor=ACTOR)
        before = await changes.read(tx), await audit.list_events(tx)
        assert not await quotas.clear_quota(tx, acme, actor=ACTOR)
        assert (await changes.read(tx), await audit.list_events(tx)) == before
        assert await quotas.list_all(tx) == []


async def test_percentages_add_up_to_all_and_no_further(
    db: Database, acme: Tenant, globex: Tenant
) -> None:
    """The last hundredth fits; one more is refused with what is free."""
    async with db.transaction() as tx:
        await quotas.set_quota(tx, acme, quota("60.5%"), actor=ACTOR)
        await quotas.set_quota(tx, globex, quota("39.5%"), actor=ACTOR)
        with pytest.raises(Conflict) as refused:
            await quotas.set_quota(tx, globex, quota("39.51%"), actor=ACTOR)
        assert await quotas.get_quota(tx, globex) == quota("39.5%")
    assert str(refused.value) == (
        "reserves would add up to 100.01% of 100%: acme 60.5%, globex 39.51%;"
        " free for globex: 39.5%"
    )


async def test_a_suspended_tenants_reserve_counts_and_a_deleted_ones_does_not(
    db: Database, acme: Tenant, globex: Tenant
) -> None:
    """Resuming must always be possible; deleting frees."""
    async with db.transaction() as tx:
        await quotas.set_quota(tx, acme, quota("80%"), actor=ACTOR)
        await tenants.suspend(tx, acme, actor=ACTOR)
        with pytest.raises(Conflict, match="acme 80%"):
            await quotas.set_quota(tx, globex, quota("30%"), actor=ACTOR)
        await tenants.delete(tx, acme, actor=ACTOR)
        await quotas.set_quota(tx, globex, quota("30%"), actor=ACTOR)


async def test_mixed_units_add_up_in_an_engines_blocks(
    db: Database, acme: Tenant, globex: Tenant
) -> None:
    """On each engine that could be asked; what fits one may not fit another."""
    small = Capacity(blocks=200, block_tokens=32, block_bytes=2**20)
    async with db.transaction() as tx:
        await quotas.set_quota(tx, acme, quota("50%"), actor=ACTOR)
        wanted = quota("160 blocks")
        await quotas.set_quota(tx, globex, wanted, engines={"big": DEMO}, actor=ACTOR)
        await quotas.clear_quota(tx, globex, actor=ACTOR)
        engines = {"big": DEMO, "small": small}
        with pytest.raises(Conflict) as refused:
            await quotas.set_quota(tx, globex, wanted, engines=engines, actor=ACTOR)
    assert str(refused.value) == (
        "reserves would add up to 260 of 200 blocks on engine small: globex 160, acme 100;"
        " free for globex: 100"
    )


async def test_a_quota_that_an_engine_cannot_keep_is_refused(db: Database, acme: Tenant) -> None:
    """A ceiling below the reserve in blocks, or bytes where their size is unknown."""
    async with db.transaction() as tx:
        for wanted, capacity, words in (
            (quota("50%", "8MiB"), DEMO, "on engine demo: the ceiling 8MiB is 8 blocks here"),
            (quota("1GiB"), Capacity(320, 32), "on engine demo: 1GiB: this engine does not know"),
        ):
            with pytest.raises(Conflict, match=words):
                await quotas.set_quota(tx, acme, wanted, engines={"demo": capacity}, actor=ACTOR)
        assert await quotas.list_all(tx) == []


async def test_what_is_too_much_already_can_be_lowered(
    db: Database, acme: Tenant, globex: Tenant
) -> None:
    """An engine has shrunk below what is reserved: each step down is taken, no step up."""
    engines = {"demo": Capacity(blocks=100, block_tokens=32)}
    async with db.transaction() as tx:
        for tenant in (acme, globex):
            await quotas.set_quota(tx, tenant, quota("90 blocks"), actor=ACTOR)

        async def change(reserve: str, weight: int = 1) -> None:
            wanted = quota(reserve, weight=Decimal(weight))
            await quotas.set_quota(tx, acme, wanted, engines=engines, actor=ACTOR)

        await change("90 blocks", weight=2)
        await change("80 blocks")
        with pytest.raises(Conflict, match="free for acme: 10"):
            await change("81 blocks")
        await change("10 blocks")


async def test_only_the_living_have_quotas(db: Database, acme: Tenant) -> None:
    """A deleted tenant, by name or id, has none and gets none."""
    async with db.transaction() as tx:
        await tenants.delete(tx, acme, actor=ACTOR)
        for ref in ("acme", acme.id):
            with pytest.raises(NotFound):
                await quotas.set_quota(tx, ref, quota("1%"), actor=ACTOR)
            with pytest.raises(NotFound):
                await quotas.get_quota(tx, ref)
            with pytest.raises(NotFound):
                await quotas.clear_quota(tx, ref, actor=ACTOR)


async def test_a_row_that_is_no_quota_is_an_error(db: Database, acme: Tenant) -> None:
    """Nothing is guessed from what somebody wrote into the table."""
    async with db.transaction() as tx:
        await quotas.set_quota(tx, acme, quota("30%"), actor=ACTOR)
        await tx.execute(update(QuotaRow).values(weight="heavy"))
        with pytest.raises(ValueError, match="weight"):
            await quotas.get_quota(tx, acme)
