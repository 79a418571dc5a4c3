"""Salt generations: sealed in their row, promoted once, destroyed when their grace ends."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import cbor2
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_tenants import audit, changes, policy, salts, tenants
from saltwall_tenants.database import Database
from saltwall_tenants.errors import Conflict, Invalid, KeyUnavailable, NotFound
from saltwall_tenants.keyring import Keyring
from saltwall_tenants.models import Base, SaltRow
from saltwall_tenants.tenants import Tenant

ACTOR = "cli:test"
HOUR = timedelta(hours=1)


async def statuses(tx: AsyncSession, tenant: Tenant) -> list[str]:
    """The status of each generation, from 1."""
    generations = await salts.list_for(tx, tenant)
    assert [g.generation for g in generations] == list(range(1, len(generations) + 1))
    return [g.status for g in generations]


async def rotated(tx: AsyncSession, keyring: Keyring, tenant: Tenant, grace: timedelta) -> int:
    """Rotates and promotes; returns the new generation."""
    fresh = await salts.rotate(tx, keyring, tenant, grace=grace, actor=ACTOR)
    assert await salts.promote(tx, tenant, fresh.generation, actor=ACTOR)
    return fresh.generation


async def test_sealed_is_the_envelope_of_the_design(
    db: Database, keyring: Keyring, acme: Tenant
) -> None:
    """AES-256-GCM twice, the data key under the KEK; AAD = CBOR[table, tenant, generation]."""
    async with db.snapshot() as tx:
        row = (await tx.execute(select(SaltRow.kek_id, SaltRow.wrapped_key, SaltRow.sealed))).one()
        secret = await salts.current_secret(tx, keyring, acme.id)
    place = cbor2.dumps(["salts", acme.id.bytes, 1], canonical=True)
    kek = keyring.keks[row.kek_id]
    data_key = AESGCM(kek).decrypt(row.wrapped_key[:12], row.wrapped_key[12:], place)
    opened = AESGCM(data_key).decrypt(row.sealed[:12], row.sealed[12:], place)
    assert (len(data_key), len(opened)) == (32, 32)
    assert opened == secret.secret


async def test_every_generation_has_its_own_secret(
    db: Database, keyring: Keyring, acme: Tenant
) -> None:
    """No two generations, nor two tenants, share a secret, a data key or a nonce."""
    async with db.transaction() as tx:
        globex = await tenants.create(tx, keyring, "globex", actor=ACTOR)
        secrets = {(await salts.current_secret(tx, keyring, globex.id)).secret}
        secrets.add((await salts.current_secret(tx, keyring, acme.id)).secret)
        await rotated(tx, keyring, acme, HOUR)
        secrets.add((await salts.current_secret(tx, keyring, acme.id)).secret)
        sealed = (await tx.execute(select(SaltRow.wrapped_key, SaltRow.sealed))).all()
    assert len(secrets) == 3
    assert len({part[:12] for row in sealed for part in row if part}) == 6


async def test_stored_secret_is_sealed(db: Database, keyring: Keyring, acme: Tenant) -> None:
    """No column of any table holds the secret itself."""
    async with db.snapshot() as tx:
        secret = (await salts.current_secret(tx, keyring, acme.id)).secret
        for table in Base.metadata.tables.values():
            for row in await tx.execute(select(table)):
                assert not any(secret in value for value in row if isinstance(value, bytes))


@pytest.mark.parametrize("moved", ["tenant", "generation"])
async def test_secret_moved_to_another_row_does_not_open(
    db: Database, keyring: Keyring, acme: Tenant, moved: str
) -> None:
    """An envelope opens in its own row only: not for another tenant, nor another generation."""
    columns = (SaltRow.kek_id, SaltRow.wrapped_key, SaltRow.sealed)
    async with db.transaction() as tx:
        globex = await tenants.create(tx, keyring, "globex", actor=ACTOR)
        old = (await tx.execute(select(*columns).where(SaltRow.tenant_id == acme.id))).one()
        victim = globex
        if moved == "generation":
            await rotated(tx, keyring, acme, HOUR)
            victim = acme
        target = update(SaltRow).where(SaltRow.tenant_id == victim.id, SaltRow.status == "current")
        await tx.execute(target.values(**old._mapping))
        with pytest.raises(KeyUnavailable, match=r"altered or moved.*restore"):
            await salts.current_secret(tx, keyring, victim.id)


@pytest.mark.parametrize("column", ["wrapped_key", "sealed"])
@pytest.mark.parametrize("damage", ["flipped", "short", "empty"])
async def test_damaged_envelope_does_not_open(
    db: Database, keyring: Keyring, acme: Tenant, column: str, damage: str
) -> None:
    """A flipped bit, a missing end, nothing at all: an error that says so, never bytes."""
    async with db.transaction() as tx:
        good = (await tx.execute(select(getattr(SaltRow, column)))).scalar_one()
        bad = {"flipped": good[:-1] + bytes([good[-1] ^ 1]), "short": good[:11], "empty": b""}
        await tx.execute(update(SaltRow).values({column: bad[damage]}))
        with pytest.raises(KeyUnavailable, match="altered or moved"):
            await salts.current_secret(tx, keyring, acme.id)


async def test_another_databases_keyring_is_named_as_the_cause(
    db: Database, acme: Tenant, other_keyring: Keyring
) -> None:
    """With the wrong key file, the error names the file and what to do, and shows no secret."""
    async with db.snapshot() as tx:
        with pytest.raises(KeyUnavailable, match=r"not in gateway\.json: restore the key file"):
            await salts.current_secret(tx, other_keyring, acme.id)


async def test_wrong_kek_of_the_same_name_is_an_error(
    db: Database, keyring: Keyring, acme: Tenant, other_keyring: Keyring
) -> None:
    """A KEK with the right id and other bytes fails to open, with the same remedy."""
    impostor = Keyring(
        keks={keyring.current_kek: other_keyring.keks[other_keyring.current_kek]},
        current_kek=keyring.current_kek,
        peppers=keyring.peppers,
        current_pepper=keyring.current_pepper,
        ticket_root=keyring.ticket_root,
    )
    async with db.snapshot() as tx:
        with pytest.raises(KeyUnavailable, match=r"gateway\.json is not the one"):
            await salts.current_secret(tx, impostor, acme.id)


async def test_old_kek_still_opens_old_secrets(
    db: Database, keyring: Keyring, acme: Tenant, other_keyring: Keyring
) -> None:
    """With a new current KEK, old secrets open, and new generations are sealed with it."""
    newer = Keyring(
        keks={**keyring.keks, **other_keyring.keks},
        current_kek=other_keyring.current_kek,
        peppers=keyring.peppers,
        current_pepper=keyring.current_pepper,
        ticket_root=keyring.ticket_root,
    )
    async with db.transaction() as tx:
        assert await salts.current_secret(tx, newer, acme.id) == await salts.current_secret(
            tx, keyring, acme.id
        )
        await salts.rotate(tx, newer, acme, grace=HOUR, actor=ACTOR)
        keks = await tx.execute(select(SaltRow.kek_id).order_by(SaltRow.generation))
        assert list(keks.scalars()) == [keyring.current_kek, other_keyring.current_kek]


async def test_rotation_waits_for_promotion(db: Database, keyring: Keyring, acme: Tenant) -> None:
    """A new generation is pending and accepted by engines, while requests use the old one."""
    async with db.transaction() as tx:
        before = await salts.current_secret(tx, keyring, acme.id)
        fresh = await salts.rotate(tx, keyring, acme, grace=HOUR, actor=ACTOR)
        assert (fresh.generation, fresh.status) == (2, "pending")
        assert await statuses(tx, acme) == ["current", "pending"]
        assert (await salts.list_for(tx, acme))[-1] == fresh
        assert await salts.current_secret(tx, keyring, acme.id) == before
        assert await policy.pending(tx) == [(acme.id, 2)]
        assert (await policy.snapshot(tx, "demo")).authorisation.tenants[acme.id] == {1, 2}


async def test_promotion_retires_the_old_one(db: Database, keyring: Keyring, acme: Tenant) -> None:
    """Promotion makes the new one current, and gives the old one the rotation's grace."""
    async with db.transaction() as tx:
        earliest = datetime.now(UTC) + HOUR
        await rotated(tx, keyring, acme, HOUR)
        latest = datetime.now(UTC) + HOUR
        old, new = await salts.list_for(tx, acme)
        assert (old.status, new.status) == ("retiring", "current")
        assert old.retire_at is not None
        assert earliest <= old.retire_at <= latest
        assert new.retire_at is None
        assert (await salts.current_secret(tx, keyring, acme.id)).generation == 2
        assert await policy.pending(tx) == []
        assert (await policy.snapshot(tx, "demo")).authorisation.tenants[acme.id] == {1, 2}


async def test_a_shorter_grace_ends_the_older_generations_too(
    db: Database, keyring: Keyring, acme: Tenant
) -> None:
    """After a rotation without grace no older generation lives on; a longer one extends none."""
    async with db.transaction() as tx:
        await rotated(tx, keyring, acme, HOUR)
        (first, _) = await salts.list_for(tx, acme)
        await rotated(tx, keyring, acme, 2 * HOUR)
        assert (await salts.list_for(tx, acme))[0] == first
        await rotated(tx, keyring, acme, timedelta())
        assert await salts.expire(tx, datetime.now(UTC), actor=ACTOR) == 3
        assert await statuses(tx, acme) == ["revoked", "revoked", "revoked", "current"]


async def test_promoting_again_does_nothing(db: Database, keyring: Keyring, acme: Tenant) -> None:
    """Only the first of several promotions does it; the others change and record nothing."""
    async with db.transaction() as tx:
        assert await rotated(tx, keyring, acme, HOUR) == 2
        epochs, events = await changes.read(tx), await audit.list_events(tx)
        for generation in (2, 1, 3, 0):
            assert not await salts.promote(tx, acme, generation, actor="gateway")
        assert (await changes.read(tx), await audit.list_events(tx)) == (epochs, events)
        assert await statuses(tx, acme) == ["retiring", "current"]


async def test_second_rotation_waits_for_the_first(
    db: Database, keyring: Keyring, acme: Tenant
) -> None:
    """While one is pending another is refused with the reason; afterwards it is not."""
    async with db.transaction() as tx:
        await salts.rotate(tx, keyring, acme, grace=HOUR, actor=ACTOR)
        with pytest.raises(Conflict, match="under way"):
            await salts.rotate(tx, keyring, acme, grace=HOUR, actor=ACTOR)
        await salts.promote(tx, acme, 2, actor="gateway")
        await rotated(tx, keyring, acme, HOUR)
        assert await statuses(tx, acme) == ["retiring", "retiring", "current"]


@pytest.mark.parametrize("grace", [timedelta(seconds=-1), timedelta(days=8), timedelta.max])
async def test_senseless_grace_is_refused(
    db: Database, keyring: Keyring, acme: Tenant, grace: timedelta
) -> None:
    """A negative or endless grace is refused."""
    async with db.transaction() as tx:
        with pytest.raises(Invalid, match="grace"):
            await salts.rotate(tx, keyring, acme, grace=grace, actor=ACTOR)


async def test_expiry_destroys_what_is_due(db: Database, keyring: Keyring, acme: Tenant) -> None:
    """At its time, and not before, a retiring secret is destroyed and leaves the policy."""
    async with db.transaction() as tx:
        await rotated(tx, keyring, acme, HOUR)
        retire_at = (await salts.list_for(tx, acme))[0].retire_at
        assert retire_at is not None
        before = await changes.read(tx)
        early = retire_at - timedelta(microseconds=1)
        assert await salts.expire(tx, early, actor="gateway") == 0
        assert await changes.read(tx) == before
        assert await salts.expire(tx, retire_at, actor="gateway") == 1
        assert await statuses(tx, acme) == ["revoked", "current"]
        assert (await policy.snapshot(tx, "demo")).authorisation.tenants[acme.id] == {2}
        after = await changes.read(tx)
        assert after["authorisation"] > before["authorisation"]
        assert after["keys"] == before["keys"]
        left = select(SaltRow.kek_id, SaltRow.wrapped_key, SaltRow.sealed)
        old = (await tx.execute(left.where(SaltRow.generation == 1))).one()
        assert tuple(old) == (None, None, None)
        assert await salts.expire(tx, retire_at, actor="gateway") == 0


async def test_expiry_reaches_every_tenant(db: Database, keyring: Keyring, acme: Tenant) -> None:
    """One call expires what is due of all tenants, with an event each."""
    async with db.transaction() as tx:
        globex = await tenants.create(tx, keyring, "globex", actor=ACTOR)
        for tenant in (acme, globex):
            await rotated(tx, keyring, tenant, timedelta(0))
        assert await salts.expire(tx, datetime.now(UTC), actor="gateway") == 2
        events = (await audit.list_events(tx))[:2]
        assert {event.subject for event in events} == {f"tenant:{t.id}" for t in (acme, globex)}


async def test_suspended_tenants_rotation_waits(
    db: Database, keyring: Keyring, acme: Tenant
) -> None:
    """No engine can acknowledge a suspended tenant's salt, so it is not pending until resumed."""
    async with db.transaction() as tx:
        await salts.rotate(tx, keyring, acme, grace=HOUR, actor=ACTOR)
        await tenants.suspend(tx, acme, actor=ACTOR)
        assert await policy.pending(tx) == []
        await tenants.resume(tx, acme, actor=ACTOR)
        assert await policy.pending(tx) == [(acme.id, 2)]


async def test_no_tenant_has_no_secret(db: Database, keyring: Keyring) -> None:
    """An id that is no tenant's is a 404."""
    async with db.snapshot() as tx:
        with pytest.raises(NotFound):
            await salts.current_secret(tx, keyring, uuid4())


@pytest.mark.parametrize(
    ("generation", "broken"),
    [
        (1, {"status": "revoked"}),
        (1, {"sealed": None}),
        (1, {"kek_id": None}),
        (1, {"status": "unheard-of"}),
        (1, {"status": "pending"}),
        (2, {"status": "current"}),
    ],
)
async def test_database_itself_holds_the_rules(
    db: Database, keyring: Keyring, acme: Tenant, generation: int, broken: dict[str, str | None]
) -> None:
    """Revoked means destroyed; one generation is current and one pending: whoever writes."""

    async def break_it() -> None:
        async with db.transaction() as tx:
            await salts.rotate(tx, keyring, acme, grace=HOUR, actor=ACTOR)
            row = update(SaltRow).where(SaltRow.generation == generation)
            await tx.execute(row.values(**broken))

    with pytest.raises(IntegrityError):
        await break_it()
