"""Salts are derived once, kept in bounds, and forgotten when anything about salts changes."""

from datetime import timedelta

import pytest

from saltwall_platform import kv_salts
from saltwall_platform.bounded import Bounded
from saltwall_platform.errors import ApiError
from saltwall_platform.freshness import Freshness
from saltwall_platform.kv_salts import KvSalts
from saltwall_tenants import api_keys, salts, tenants


@pytest.fixture
async def freshness(world) -> Freshness:
    freshness = Freshness(world.database, 60)
    await freshness.ensure()
    return freshness


@pytest.fixture
def salts_of(world, freshness) -> KvSalts:
    return KvSalts(world.database, world.keyring, freshness)


async def test_tenants_deployments_and_scopes_have_salts_of_their_own(world, salts_of):
    found = {
        (await salts_of.get(tenant.id, name, scope)).salt
        for tenant in (world.acme, world.globex)
        for name in ("demo", "other")
        for scope in ("", "a", "b")
    }
    assert len(found) == 12


async def test_the_database_is_asked_once(world, salts_of, monkeypatch):
    first = await salts_of.get(world.acme.id, "demo", "")

    def unplugged():
        raise OSError("unplugged")

    monkeypatch.setattr(world.database, "snapshot", unplugged)
    assert await salts_of.get(world.acme.id, "demo", "") is first
    assert (await salts_of.get(world.acme.id, "demo", "new scope")).salt != first.salt
    with pytest.raises(ApiError) as caught:
        await salts_of.get(world.globex.id, "demo", "")
    assert caught.value.status == 503


async def test_scopes_that_clients_make_up_do_not_fill_the_memory(world, freshness, monkeypatch):
    monkeypatch.setattr(kv_salts, "REMEMBERED", 10)
    salts_of = KvSalts(world.database, world.keyring, freshness)
    first = await salts_of.get(world.acme.id, "demo", "")
    for number in range(50):
        await salts_of.get(world.acme.id, "demo", str(number))
    assert len(salts_of._salts) == 10
    assert await salts_of.get(world.acme.id, "demo", "") == first


async def test_a_rotation_is_followed_and_a_change_of_keys_is_not_one(world, freshness, salts_of):
    first = await salts_of.get(world.acme.id, "demo", "")
    await world.change(lambda tx: api_keys.create(tx, world.keyring, "acme", actor="test"))
    await freshness.ensure(max_age_s=0)
    assert await salts_of.get(world.acme.id, "demo", "") is first
    grace = timedelta(0)
    await world.change(
        lambda tx: salts.rotate(tx, world.keyring, "acme", grace=grace, actor="test")
    )
    await world.change(lambda tx: salts.promote(tx, "acme", 2, actor="test"))
    await freshness.ensure(max_age_s=0)
    second = await salts_of.get(world.acme.id, "demo", "")
    assert second.generation == 2
    assert second.salt != first.salt


async def test_a_deleted_tenant_has_no_salt(world, freshness, salts_of):
    await world.change(lambda tx: tenants.delete(tx, "acme", actor="test"))
    await freshness.ensure(max_age_s=0)
    with pytest.raises(ApiError) as caught:
        await salts_of.get(world.acme.id, "demo", "")
    assert caught.value.status == 403


async def test_a_representation_shows_no_salt(world, salts_of):
    salt = await salts_of.get(world.acme.id, "demo", "")
    shown = repr(salt) + repr(vars(salts_of)["_secrets"]) + str(salt)
    assert salt.salt.hex() not in shown
    assert repr(salt.salt) not in shown


def test_what_was_used_longest_ago_is_forgotten_first():
    entries: Bounded[str, int] = Bounded(2)
    entries.put("a", 1)
    entries.put("b", 2)
    assert entries.get("a") == 1
    entries.put("c", 3)
    assert (entries.get("a"), entries.get("b"), entries.get("c")) == (1, None, 3)
    entries.clear()
    assert len(entries) == 0
