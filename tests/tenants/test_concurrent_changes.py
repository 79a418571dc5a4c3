"""Several gateways and operators at once: everything happens once, in one order."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_tenants import api_keys, audit, changes, policy, quotas, salts, tenants, usage
from saltwall_tenants.database import Database
from saltwall_tenants.errors import Conflict, NotFound
from saltwall_tenants.keyring import Keyring
from saltwall_tenants.tenants import Tenant
from saltwall_tenants.wire import Amount, Quota

ACTOR = "cli:test"
Act = Callable[[AsyncSession], Awaitable[Any]]


@pytest.fixture
async def gateways(database_url: str) -> AsyncIterator[list[Database]]:
    """Four processes' worth of connection pools on the same database."""
    databases = [Database(database_url) for _ in range(4)]
    yield databases
    for database in databases:
        await database.dispose()


async def together(gateways: list[Database], *acts: Act) -> list[Any]:
    """Runs each act in a transaction of its own, all begun before any goes on."""
    ready = asyncio.Barrier(len(acts))

    async def run(database: Database, act: Act) -> Any:
        await ready.wait()
        async with database.transaction() as tx:
            return await act(tx)

    return await asyncio.gather(
        *(run(gateways[i % len(gateways)], act) for i, act in enumerate(acts)),
        return_exceptions=True,
    )


async def test_one_of_two_rotations_wins(
    gateways: list[Database], keyring: Keyring, acme: Tenant
) -> None:
    """Of rotations at once, one makes generation 2 and the others conflict."""

    def rotate(tx: AsyncSession) -> Awaitable[Any]:
        return salts.rotate(tx, keyring, "acme", grace=timedelta(0), actor=ACTOR)

    results = await together(gateways, *[rotate] * 4)
    assert sorted(type(result).__name__ for result in results) == ["Conflict"] * 3 + [
        "SaltGeneration"
    ]
    async with gateways[0].snapshot() as tx:
        assert [g.generation for g in await salts.list_for(tx, "acme")] == [1, 2]


async def test_one_of_several_promotions_does_it(
    gateways: list[Database], keyring: Keyring, acme: Tenant
) -> None:
    """Of promotions at once, one returns True; there is one event and one current salt."""
    async with gateways[0].transaction() as tx:
        await salts.rotate(tx, keyring, acme, grace=timedelta(hours=1), actor=ACTOR)
        before = (await changes.read(tx))["authorisation"]
    results = await together(
        gateways, *[lambda tx: salts.promote(tx, acme.id, 2, actor="gateway")] * 4
    )
    assert sorted(results) == [False, False, False, True]
    async with gateways[0].snapshot() as tx:
        assert [g.status for g in await salts.list_for(tx, acme)] == ["retiring", "current"]
        assert [e.action for e in await audit.list_events(tx)].count("salt.promote") == 1
        assert (await changes.read(tx))["authorisation"] > before


async def test_each_retired_salt_expires_once(
    gateways: list[Database], keyring: Keyring, acme: Tenant
) -> None:
    """Of expiries at once, one destroys each salt: the counts add up to what was due."""
    async with gateways[0].transaction() as tx:
        for name in ("globex", "initech"):
            await tenants.create(tx, keyring, name, actor=ACTOR)
        for name in ("acme", "globex", "initech"):
            await salts.rotate(tx, keyring, name, grace=timedelta(0), actor=ACTOR)
            await salts.promote(tx, name, 2, actor=ACTOR)
    now = datetime.now(UTC)
    results = await together(gateways, *[lambda tx: salts.expire(tx, now, actor="gateway")] * 4)
    assert sorted(results) == [0, 0, 0, 3]
    async with gateways[0].snapshot() as tx:
        assert [e.action for e in await audit.list_events(tx)].count("salt.expire") == 3


async def test_one_of_several_tenants_gets_the_name(
    gateways: list[Database], keyring: Keyring
) -> None:
    """Of creations with one name at once, one wins and the others conflict."""
    results = await together(
        gateways, *[lambda tx: tenants.create(tx, keyring, "acme", actor=ACTOR)] * 4
    )
    (made,) = (result for result in results if isinstance(result, Tenant))
    assert sum(isinstance(result, Conflict) for result in results) == 3
    async with gateways[0].snapshot() as tx:
        assert await tenants.list_all(tx) == [made]


async def test_reserves_set_at_once_never_pass_all(
    gateways: list[Database], keyring: Keyring, acme: Tenant
) -> None:
    """Of four tenants that each want 30 % at once, three get it."""
    names = ["acme", "b", "c", "d"]
    async with gateways[0].transaction() as tx:
        for name in names[1:]:
            await tenants.create(tx, keyring, name, actor=ACTOR)

    def reservation(name: str) -> Act:
        quota = Quota(Amount.parse("30%"))
        return lambda tx: quotas.set_quota(tx, name, quota, actor=ACTOR)

    results = await together(gateways, *map(reservation, names))
    assert sorted(type(result).__name__ for result in results) == ["Conflict"] + ["Quota"] * 3
    async with gateways[0].snapshot() as tx:
        assert len(await quotas.list_all(tx)) == 3


async def test_no_key_outlives_its_tenant(
    gateways: list[Database], keyring: Keyring, acme: Tenant
) -> None:
    """Keys made while their tenant is deleted are refused, or revoked with it: none works."""

    def create(tx: AsyncSession) -> Awaitable[Any]:
        return api_keys.create(tx, keyring, "acme", actor=ACTOR)

    def delete(tx: AsyncSession) -> Awaitable[Any]:
        return tenants.delete(tx, "acme", actor=ACTOR)

    results = await together(gateways, create, create, delete, create, create)
    keys = [result for result in results if isinstance(result, api_keys.NewKey)]
    assert sum(isinstance(result, NotFound) for result in results) == 4 - len(keys)
    async with gateways[0].snapshot() as tx:
        assert all(key.revoked_at for key in await api_keys.list_for(tx, acme))
        for key in keys:
            assert await api_keys.authenticate(tx, keyring, key.plaintext) is None


async def test_no_rotation_outlives_its_tenant(
    gateways: list[Database], keyring: Keyring, acme: Tenant
) -> None:
    """A rotation while its tenant is deleted leaves no live secret behind."""
    await together(
        gateways,
        lambda tx: salts.rotate(tx, keyring, "acme", grace=timedelta(0), actor=ACTOR),
        lambda tx: tenants.delete(tx, "acme", actor=ACTOR),
    )
    async with gateways[0].snapshot() as tx:
        assert {g.status for g in await salts.list_for(tx, acme)} == {"revoked"}


async def test_epochs_strictly_increase(gateways: list[Database], acme: Tenant) -> None:
    """Every one of many changes at once gets an epoch of its own."""

    async def change(tx: AsyncSession) -> int:
        await changes.lock(tx)
        await asyncio.sleep(0)  # lets the others at it
        return await changes.bump(tx, changes.AUTHORISATION)

    epochs = await together(gateways, *[change] * 12)
    assert len(set(epochs)) == 12
    async with gateways[0].snapshot() as tx:
        assert (await changes.read(tx))["authorisation"] == max(epochs)


async def test_bump_alone_never_repeats_an_epoch(gateways: list[Database]) -> None:
    """Even a caller that forgot the lock gets an epoch that nobody else has."""
    epochs = await together(gateways, *[lambda tx: changes.bump(tx, changes.AUTHORISATION)] * 12)
    assert len(set(epochs)) == 12


async def test_an_epoch_names_one_content(
    gateways: list[Database], keyring: Keyring, acme: Tenant
) -> None:
    """While tenants come and go, every snapshot of an epoch has the same digest."""
    writing = True
    digests: dict[int, set[str]] = {}

    async def write() -> None:
        for name in ("a", "b", "c", "d"):
            async with gateways[0].transaction() as tx:
                await tenants.create(tx, keyring, name, actor=ACTOR)
            async with gateways[1].transaction() as tx:
                await tenants.suspend(tx, name, actor=ACTOR)

    async def read(database: Database) -> None:
        while writing:
            async with database.snapshot() as tx:
                section = (await policy.snapshot(tx, "demo")).authorisation
            digests.setdefault(section.epoch, set()).add(section.digest)

    readers = [asyncio.create_task(read(database)) for database in gateways[2:]]
    await write()
    writing = False
    await asyncio.gather(*readers)
    assert len(digests) > 1
    assert all(len(seen) == 1 for seen in digests.values())


async def test_audit_numbers_follow_the_order_of_commits(
    gateways: list[Database], keyring: Keyring
) -> None:
    """With acts at once, no event is numbered twice, and their order is that of their times."""
    names = [f"t{i}" for i in range(8)]

    def creation(name: str) -> Act:
        return lambda tx: tenants.create(tx, keyring, name, actor=ACTOR)

    await together(gateways, *map(creation, names))
    async with gateways[0].snapshot() as tx:
        events = await audit.list_events(tx)
    assert sorted(event.detail["name"] for event in events) == names
    assert [e.at for e in events] == sorted((e.at for e in events), reverse=True)


async def test_data_plane_writes_never_deadlock_with_acts(
    gateways: list[Database], keyring: Keyring, acme: Tenant
) -> None:
    """Usage and last-used batches of two gateways, and a deletion, all at once: no error."""
    async with gateways[0].transaction() as tx:
        keys = [await api_keys.create(tx, keyring, acme, actor=ACTOR) for _ in range(20)]
    now = datetime.now(UTC)
    ids = [key.record.public_id for key in keys]
    records = [
        usage.UsageRecord(f"r{i}", acme.id, ids[0], "demo", "/v1", 1, 0, 1, 200, now, 0.1)
        for i in range(20)
    ]
    results = await together(
        gateways,
        lambda tx: api_keys.touch(tx, dict.fromkeys(ids, now)),
        lambda tx: api_keys.touch(tx, dict.fromkeys(reversed(ids), now + timedelta(seconds=1))),
        lambda tx: tenants.delete(tx, acme, actor=ACTOR),
        lambda tx: usage.record(tx, records),
        lambda tx: usage.record(tx, records[::-1]),
    )
    assert [r for r in results if isinstance(r, BaseException)] == []
    async with gateways[0].snapshot() as tx:
        assert (await usage.totals(tx, acme.id)).requests == 20
        assert all(key.revoked_at for key in await api_keys.list_for(tx, acme))
