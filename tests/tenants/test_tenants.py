"""A tenant's life: created, suspended, resumed, deleted."""

from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import select

from saltwall_tenants import api_keys, changes, policy, salts, tenants
from saltwall_tenants.database import Database
from saltwall_tenants.errors import Conflict, DomainError, Invalid, NotFound
from saltwall_tenants.keyring import Keyring
from saltwall_tenants.models import SaltRow
from saltwall_tenants.tenants import Tenant

ACTOR = "cli:test"


async def test_new_tenant_is_active_and_salted(
    db: Database, keyring: Keyring, acme: Tenant
) -> None:
    """A new tenant has a random id and a current salt of generation 1."""
    assert (acme.name, acme.status, acme.id.version) == ("acme", "active", 4)
    async with db.snapshot() as tx:
        assert await tenants.get(tx, "acme") == acme
        assert (await salts.current_secret(tx, keyring, acme.id)).generation == 1


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-acme",
        "Acme",
        "ac me",
        "acme\n",
        "acmé",
        "a" * 64,
        "a_b",
        "a\0",
        "00000000-0000-4000-8000-000000000000",
        "00000000000040008000000000000000",
    ],
)
async def test_bad_name_is_refused(db: Database, keyring: Keyring, name: str) -> None:
    """What is no slug, or could be taken for an id, names no tenant; looking for it is safe."""
    async with db.transaction() as tx:
        with pytest.raises(Invalid, match="name is"):
            await tenants.create(tx, keyring, name, actor=ACTOR)
        with pytest.raises(NotFound):
            await tenants.get(tx, name)


@pytest.mark.parametrize("name", ["a", "0", "a" * 63, "a-1", "a--b-"])
async def test_slug_is_a_name(db: Database, keyring: Keyring, name: str) -> None:
    """Slugs up to 63 characters are names."""
    async with db.transaction() as tx:
        made = await tenants.create(tx, keyring, name, actor=ACTOR)
        assert await tenants.get(tx, name) == made


async def test_name_in_use_is_refused(db: Database, keyring: Keyring, acme: Tenant) -> None:
    """Two live tenants never share a name, a suspended one's included."""
    async with db.transaction() as tx:
        await tenants.suspend(tx, acme, actor=ACTOR)
        with pytest.raises(Conflict, match="choose another"):
            await tenants.create(tx, keyring, "acme", actor=ACTOR)


async def test_tenant_is_found_in_every_way(db: Database, acme: Tenant) -> None:
    """By name, by id as a value or as either text, and by an earlier value of itself."""
    async with db.snapshot() as tx:
        for reference in ("acme", acme.id, str(acme.id), acme.id.hex, acme):
            assert await tenants.get(tx, reference) == acme


async def test_unknown_tenant_says_how_to_find_one(db: Database, acme: Tenant) -> None:
    """An unknown name or id is a 404 that says where names are listed."""
    async with db.snapshot() as tx:
        for reference in ("globex", uuid4(), str(uuid4())):
            with pytest.raises(NotFound, match="tenant list") as error:
                await tenants.get(tx, reference)
            assert error.value.status == 404


async def test_suspended_tenant_is_out_of_the_policy_until_resumed(
    db: Database, acme: Tenant
) -> None:
    """Suspension takes the tenant out of what engines accept; resumption puts it back."""
    async with db.transaction() as tx:
        assert (await tenants.suspend(tx, "acme", actor=ACTOR)).status == "suspended"
        assert (await policy.snapshot(tx, "demo")).authorisation.tenants == {}
        assert await tenants.resume(tx, "acme", actor=ACTOR) == acme
        assert set((await policy.snapshot(tx, "demo")).authorisation.tenants) == {acme.id}


@pytest.mark.parametrize("act", [tenants.suspend, tenants.resume])
async def test_again_is_no_change(db: Database, acme: Tenant, act: object) -> None:
    """Suspending or resuming twice moves no epoch the second time."""
    async with db.transaction() as tx:
        await act(tx, "acme", actor=ACTOR)  # type: ignore[operator]
        before = await changes.read(tx)
        await act(tx, "acme", actor=ACTOR)  # type: ignore[operator]
        assert await changes.read(tx) == before


async def test_deleted_tenant_leaves_no_way_in(
    db: Database, keyring: Keyring, acme: Tenant
) -> None:
    """Deletion revokes every key, destroys every sealed secret, and leaves the policy."""
    async with db.transaction() as tx:
        keys = [await api_keys.create(tx, keyring, acme, actor=ACTOR) for _ in range(2)]
        await salts.rotate(tx, keyring, acme, grace=timedelta(hours=1), actor=ACTOR)
    async with db.transaction() as tx:
        assert (await tenants.delete(tx, "acme", actor=ACTOR)).status == "deleted"
    async with db.snapshot() as tx:
        for key in keys:
            assert await api_keys.authenticate(tx, keyring, key.plaintext) is None
        assert all(key.revoked_at for key in await api_keys.list_for(tx, acme))
        assert {g.status for g in await salts.list_for(tx, acme)} == {"revoked"}
        sealed = select(SaltRow.sealed, SaltRow.wrapped_key).where(SaltRow.tenant_id == acme.id)
        assert set(await tx.execute(sealed)) == {(None, None)}
        assert (await policy.snapshot(tx, "demo")).authorisation.tenants == {}
        with pytest.raises(NotFound, match="no current salt"):
            await salts.current_secret(tx, keyring, acme.id)


async def test_deleted_tenant_stays_for_the_books(db: Database, acme: Tenant) -> None:
    """A deleted tenant is found by its id and listed on request only."""
    async with db.transaction() as tx:
        gone = await tenants.delete(tx, "acme", actor=ACTOR)
        assert await tenants.get(tx, acme.id) == gone
        assert await tenants.list_all(tx) == []
        assert await tenants.list_all(tx, deleted=True) == [gone]
        with pytest.raises(NotFound):
            await tenants.get(tx, "acme")


async def test_name_of_a_deleted_tenant_is_free(
    db: Database, keyring: Keyring, acme: Tenant
) -> None:
    """A name can be used again, by another tenant with another id; more than once."""
    async with db.transaction() as tx:
        await tenants.delete(tx, "acme", actor=ACTOR)
        second = await tenants.create(tx, keyring, "acme", actor=ACTOR)
        assert await tenants.get(tx, "acme") == second
        assert second.id != acme.id
        await tenants.delete(tx, "acme", actor=ACTOR)
        await tenants.create(tx, keyring, "acme", actor=ACTOR)


async def test_deleted_tenant_cannot_be_used(db: Database, keyring: Keyring, acme: Tenant) -> None:
    """No key, rotation, suspension, resumption or second deletion for a deleted tenant."""
    async with db.transaction() as tx:
        await tenants.delete(tx, "acme", actor=ACTOR)
        for refused in (
            api_keys.create(tx, keyring, acme, actor=ACTOR),
            salts.rotate(tx, keyring, acme, grace=timedelta(0), actor=ACTOR),
            tenants.suspend(tx, acme, actor=ACTOR),
            tenants.resume(tx, acme, actor=ACTOR),
            tenants.delete(tx, acme, actor=ACTOR),
        ):
            with pytest.raises(NotFound, match="is deleted"):
                await refused
        assert not await salts.promote(tx, acme, 1, actor=ACTOR)


async def test_acts_bump_what_they_change(db: Database, keyring: Keyring, acme: Tenant) -> None:
    """Suspension, resumption and deletion move both epochs; creation only what engines know."""
    both = {"authorisation", "keys"}

    async def moved(act: object, *arguments: object) -> set[str]:
        async with db.transaction() as tx:
            before = await changes.read(tx)
            await act(tx, *arguments, actor=ACTOR)  # type: ignore[operator]
            after = await changes.read(tx)
        assert all(after[section] >= before[section] for section in both)
        return {section for section in both if after[section] > before[section]}

    assert await moved(tenants.suspend, "acme") == both
    assert await moved(tenants.resume, "acme") == both
    assert await moved(tenants.delete, "acme") == both
    assert await moved(tenants.create, keyring, "globex") == {"authorisation"}


def test_errors_carry_their_http_status() -> None:
    """Each refusal knows its HTTP status."""
    assert [e.status for e in (NotFound, Conflict, Invalid, DomainError)] == [404, 409, 422, 500]
