"""Every act that changes something is in the audit log, with it or not at all."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_tenants import api_keys, audit, changes, policy, quotas, salts, tenants, usage
from saltwall_tenants.api_keys import NewKey
from saltwall_tenants.database import Database
from saltwall_tenants.keyring import Keyring
from saltwall_tenants.tenants import Tenant
from saltwall_tenants.wire import Amount, Quota

ACTOR = "cli:walker"


@dataclass(frozen=True)
class World:
    """A tenant with a key, a suspended one with a quota, one with a pending and one with a retired
    salt.
    """

    keyring: Keyring
    key: NewKey
    subjects: dict[str, str]


Act = Callable[[AsyncSession, World], Awaitable[Any]]
ACTS: dict[str, tuple[Callable[..., Any], Act]] = {
    "tenant.create": (
        tenants.create,
        lambda tx, world: tenants.create(tx, world.keyring, "new", actor=ACTOR),
    ),
    "tenant.suspend": (tenants.suspend, lambda tx, _: tenants.suspend(tx, "acme", actor=ACTOR)),
    "tenant.resume": (tenants.resume, lambda tx, _: tenants.resume(tx, "suspended", actor=ACTOR)),
    "tenant.delete": (tenants.delete, lambda tx, _: tenants.delete(tx, "acme", actor=ACTOR)),
    "key.create": (
        api_keys.create,
        lambda tx, world: api_keys.create(tx, world.keyring, "acme", label="ci", actor=ACTOR),
    ),
    "key.revoke": (
        api_keys.revoke,
        lambda tx, world: api_keys.revoke(tx, world.key.record.public_id, actor=ACTOR),
    ),
    "salt.rotate": (
        salts.rotate,
        lambda tx, world: salts.rotate(
            tx, world.keyring, "acme", grace=timedelta(hours=1), actor=ACTOR
        ),
    ),
    "salt.promote": (salts.promote, lambda tx, _: salts.promote(tx, "pending", 2, actor=ACTOR)),
    "quota.set": (
        quotas.set_quota,
        lambda tx, _: quotas.set_quota(tx, "acme", Quota(Amount.parse("5%")), actor=ACTOR),
    ),
    "quota.clear": (
        quotas.clear_quota,
        lambda tx, _: quotas.clear_quota(tx, "suspended", actor=ACTOR),
    ),
    "salt.expire": (salts.expire, lambda tx, _: salts.expire(tx, datetime.now(UTC), actor=ACTOR)),
}
UNAUDITED = {
    # They read.
    tenants.get,
    tenants.list_all,
    api_keys.list_for,
    api_keys.authenticate,
    salts.list_for,
    salts.current_secret,
    policy.snapshot,
    policy.pending,
    quotas.get_quota,
    quotas.list_all,
    usage.totals,
    # The ledger and the last-used time: what tenants do, not what is done to them.
    usage.record,
    api_keys.touch,
    # Parts of an act, which its caller records.
    api_keys.revoke_all,
    salts.create_first,
    salts.destroy_all,
    quotas.drop,
}


@pytest.fixture
async def world(db: Database, keyring: Keyring, acme: Tenant) -> World:
    """Something for every act to act on."""
    async with db.transaction() as tx:
        key = await api_keys.create(tx, keyring, "acme", actor="setup")
        subjects = {"acme": str(acme.id)}
        for name in ("suspended", "pending", "retired"):
            subjects[name] = str((await tenants.create(tx, keyring, name, actor="setup")).id)
        await tenants.suspend(tx, "suspended", actor="setup")
        await quotas.set_quota(tx, "suspended", Quota(Amount.parse("5%")), actor="setup")
        await salts.rotate(tx, keyring, "pending", grace=timedelta(0), actor="setup")
        await salts.rotate(tx, keyring, "retired", grace=timedelta(0), actor="setup")
        await salts.promote(tx, "retired", 2, actor="setup")
    return World(keyring, key, subjects)


def test_walk_knows_every_service() -> None:
    """A service function added tomorrow must be walked here, or be said not to change anything."""
    services = {
        function
        for module in (tenants, api_keys, salts, policy, quotas, usage)
        for name, function in inspect.getmembers(module, inspect.iscoroutinefunction)
        if not name.startswith("_")
        and function.__module__ in {module.__name__, "saltwall_tenants.registry"}
        and name != "get_live"
    }
    walked = {function for function, _ in ACTS.values()}
    assert services == walked | UNAUDITED
    assert {f for f in services if "actor" in inspect.signature(f).parameters} == walked


@pytest.mark.parametrize("action", ACTS)
async def test_act_writes_its_event(db: Database, world: World, action: str) -> None:
    """Each act adds one event that says who, what, and to what, and moves an epoch."""
    started = datetime.now(UTC)
    async with db.transaction() as tx:
        before, epochs = await audit.list_events(tx), await changes.read(tx)
        await ACTS[action][1](tx, world)
    async with db.snapshot() as tx:
        event, *rest = await audit.list_events(tx)
        assert rest == before
        assert await changes.read(tx) != epochs
    assert (event.actor, event.action) == (ACTOR, action)
    assert event.subject.split(":")[0] == ("key" if action.startswith("key.") else "tenant")
    assert started <= event.at <= datetime.now(UTC)
    assert event.sequence > before[0].sequence


@pytest.mark.parametrize("action", ACTS)
async def test_act_that_is_rolled_back_leaves_no_event(
    db: Database, world: World, action: str
) -> None:
    """When the transaction fails after the act, neither the act nor its event happened."""

    async def state() -> list[Any]:
        async with db.snapshot() as tx:
            people = await tenants.list_all(tx, deleted=True)
            return [
                people,
                [await salts.list_for(tx, tenant) for tenant in people],
                [await api_keys.list_for(tx, tenant) for tenant in people],
                await quotas.list_all(tx),
                await changes.read(tx),
                await audit.list_events(tx),
            ]

    async def act_and_fail() -> None:
        async with db.transaction() as tx:
            await ACTS[action][1](tx, world)
            raise ZeroDivisionError

    before = await state()
    with pytest.raises(ZeroDivisionError):
        await act_and_fail()
    assert await state() == before


async def test_events_hold_no_secret(db: Database, world: World) -> None:
    """After every act, no event shows a key's secret, a salt's secret, or a sealed one."""
    created: list[NewKey] = [world.key]
    async with db.transaction() as tx:
        for _, act in sorted(ACTS.items(), key=lambda item: item[0] == "tenant.delete"):
            made = await act[1](tx, world)
            if isinstance(made, NewKey):
                created.append(made)
        log = repr(await audit.list_events(tx))
    assert len(created) == 2
    for key in created:
        assert key.plaintext[21:64] not in log
        assert key.record.public_id in log


async def test_newest_events_come_first_up_to_a_limit(db: Database, world: World) -> None:
    """The list is the newest events in falling order."""
    async with db.snapshot() as tx:
        everything = await audit.list_events(tx)
        assert await audit.list_events(tx, limit=3) == everything[:3]
    numbers = [event.sequence for event in everything]
    assert numbers == sorted(numbers, reverse=True)


async def test_detail_keeps_json_values(db: Database) -> None:
    """Whatever JSON holds comes back from the log as it was."""
    detail = {"text": "grüße \0 \u2028", "list": [1, None, True, 0.5], "nested": {"": {}}}
    async with db.transaction() as tx:
        await audit.record(tx, actor="a", action="b", subject="c", detail=detail)
        (event,) = await audit.list_events(tx)
    assert event.detail == detail
