"""API keys: shown once, kept as a MAC, checked alike whatever is wrong."""

import dataclasses
import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from pathlib import Path

import cbor2
import pytest
from sqlalchemy import select, text, update

from saltwall_tenants import api_keys, audit, changes, key_format, tenants
from saltwall_tenants.database import Database
from saltwall_tenants.errors import Invalid, KeyUnavailable, NotFound
from saltwall_tenants.keyring import Keyring
from saltwall_tenants.models import ApiKeyRow, Base
from saltwall_tenants.tenants import Tenant

ACTOR = "cli:test"


@pytest.fixture
async def key(db: Database, keyring: Keyring, acme: Tenant) -> api_keys.NewKey:
    """A key of acme's."""
    async with db.transaction() as tx:
        return await api_keys.create(tx, keyring, acme, label="ci", actor=ACTOR)


async def test_key_opens_its_tenant(
    db: Database, keyring: Keyring, acme: Tenant, key: api_keys.NewKey
) -> None:
    """A genuine key names its tenant, and what it may use."""
    async with db.snapshot() as tx:
        principal = await api_keys.authenticate(tx, keyring, key.plaintext)
    assert principal == api_keys.Principal(
        acme.id, "acme", "active", key.record.public_id, models=None, expires_at=None
    )


async def test_allow_list_and_expiry_come_with_it(
    db: Database, keyring: Keyring, acme: Tenant
) -> None:
    """The model list, without duplicates, and the expiry are kept, and found again."""
    expires = datetime.now(UTC) + timedelta(days=1)
    async with db.transaction() as tx:
        key = await api_keys.create(
            tx, keyring, "acme", models=["b", "a", "b"], expires_at=expires, actor=ACTOR
        )
        principal = await api_keys.authenticate(tx, keyring, key.plaintext)
        assert principal is not None
        assert principal.models == frozenset({"a", "b"}) == key.record.models
        assert principal.expires_at == expires == key.record.expires_at
        assert await api_keys.list_for(tx, "acme") == [key.record]


async def test_stored_is_the_mac_of_the_design(
    db: Database, keyring: Keyring, acme: Tenant, key: api_keys.NewKey
) -> None:
    """HMAC-SHA256(pepper, CBOR[public id, tenant, secret]), with the pepper's version."""
    public_id, secret = key.plaintext[8:20], key.plaintext[21:64]
    assert public_id == key.record.public_id
    async with db.snapshot() as tx:
        stored = (await tx.execute(select(ApiKeyRow.mac, ApiKeyRow.pepper_version))).one()
    message = cbor2.dumps([public_id, acme.id.bytes, secret], canonical=True)
    assert stored.pepper_version == keyring.current_pepper
    assert stored.mac == hmac.digest(keyring.peppers[stored.pepper_version], message, "sha256")


async def test_plaintext_is_stored_nowhere(
    db: Database, database_url: str, key: api_keys.NewKey
) -> None:
    """No column of any table, and no byte of an SQLite file, holds the key's secret."""
    secret = key.plaintext[21:64]
    async with db.snapshot() as tx:
        for table in Base.metadata.tables.values():
            rows = (await tx.execute(select(table))).all()
            assert secret not in repr(rows)
            assert secret.encode().hex() not in repr(rows)
    if database_url.startswith("sqlite"):
        for file in Path(database_url.removeprefix("sqlite:///")).parent.glob("saltwall.db*"):
            assert secret.encode() not in file.read_bytes()


async def test_none_for_whatever_is_wrong(
    db: Database, keyring: Keyring, acme: Tenant, key: api_keys.NewKey
) -> None:
    """Unknown, wrong secret, bad checksum, other tenant's id, and no key at all: None alike."""
    mine = key_format.read(key.plaintext)
    assert mine is not None
    fresh = key_format.new_parts()
    async with db.transaction() as tx:
        other = await api_keys.create(tx, keyring, acme, actor=ACTOR)
        theirs = key_format.read(other.plaintext)
        assert theirs is not None
        for wrong in (
            key_format.write(fresh),
            key_format.write(dataclasses.replace(mine, secret=fresh.secret)),
            key_format.write(dataclasses.replace(mine, public_id=theirs.public_id)),
            key.plaintext[:-1] + ("a" if key.plaintext[-1] != "a" else "b"),
            key.plaintext + " ",
            key.record.public_id,
            "",
            "\0",
            "\ud800" * len(key.plaintext),
        ):
            assert await api_keys.authenticate(tx, keyring, wrong) is None


async def test_key_moved_to_another_tenant_is_dead(
    db: Database, keyring: Keyring, key: api_keys.NewKey
) -> None:
    """The MAC binds the tenant: a row rewritten to another tenant authenticates nobody."""
    async with db.transaction() as tx:
        globex = await tenants.create(tx, keyring, "globex", actor=ACTOR)
        await tx.execute(update(ApiKeyRow).values(tenant_id=globex.id))
        assert await api_keys.authenticate(tx, keyring, key.plaintext) is None


async def test_key_ends_when_it_expires(db: Database, keyring: Keyring, acme: Tenant) -> None:
    """A key works until its expiry, and not from that instant on."""
    expires = datetime.now(UTC) + timedelta(hours=1)
    just_before = expires - timedelta(microseconds=1)
    async with db.transaction() as tx:
        key = await api_keys.create(tx, keyring, acme, expires_at=expires, actor=ACTOR)
        assert await api_keys.authenticate(tx, keyring, key.plaintext, now=just_before)
        assert await api_keys.authenticate(tx, keyring, key.plaintext, now=expires) is None


async def test_revoked_key_is_dead(db: Database, keyring: Keyring, key: api_keys.NewKey) -> None:
    """Revocation ends a key at once, says so in the list, and again is no change."""
    async with db.transaction() as tx:
        await api_keys.revoke(tx, key.record.public_id, actor=ACTOR)
        assert await api_keys.authenticate(tx, keyring, key.plaintext) is None
        (listed,) = await api_keys.list_for(tx, "acme")
        assert listed.revoked_at is not None
        epochs, events = await changes.read(tx), await audit.list_events(tx)
        await api_keys.revoke(tx, key.record.public_id, actor=ACTOR)
        assert await api_keys.list_for(tx, "acme") == [listed]
        assert (await changes.read(tx), await audit.list_events(tx)) == (epochs, events)


async def test_suspended_tenants_key_is_known_as_such(
    db: Database, keyring: Keyring, key: api_keys.NewKey
) -> None:
    """A suspended tenant's key still names it, so that its owner can be told why."""
    async with db.transaction() as tx:
        await tenants.suspend(tx, "acme", actor=ACTOR)
        principal = await api_keys.authenticate(tx, keyring, key.plaintext)
        assert principal is not None
        assert principal.tenant_status == "suspended"


@pytest.mark.parametrize("public_id", ["unknownkeyid", "", "\0" * 12, "x" * 80])
async def test_revoking_an_unknown_key_does_not_echo_it(db: Database, public_id: str) -> None:
    """An unknown id is a 404 that shows nothing of it: it may be a whole key, pasted."""
    async with db.transaction() as tx:
        with pytest.raises(NotFound, match="key list") as refusal:
            await api_keys.revoke(tx, public_id, actor=ACTOR)
    assert not public_id or public_id not in str(refusal.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"label": "x" * 101},
        {"label": "two\nlines"},
        {"label": "\0"},
        {"models": []},
        {"models": [""]},
        {"models": "demo"},
        {"expires_at": datetime(2999, 1, 1)},
        {"expires_at": datetime(2020, 1, 1, tzinfo=UTC)},
    ],
)
async def test_senseless_key_is_refused(
    db: Database, keyring: Keyring, acme: Tenant, wrong: dict[str, object]
) -> None:
    """A label that breaks lines, a list of no models, an expiry that is past or nowhere."""
    async with db.transaction() as tx:
        with pytest.raises(Invalid):
            await api_keys.create(tx, keyring, acme, actor=ACTOR, **wrong)  # type: ignore[arg-type]
        assert await api_keys.list_for(tx, acme) == []


async def test_old_pepper_still_checks_old_keys(
    db: Database, keyring: Keyring, acme: Tenant, key: api_keys.NewKey
) -> None:
    """With a new current pepper, old keys work, and new keys use it."""
    newer = dataclasses.replace(
        keyring, peppers={**keyring.peppers, 2: bytes(range(32))}, current_pepper=2
    )
    async with db.transaction() as tx:
        fresh = await api_keys.create(tx, newer, acme, actor=ACTOR)
        assert await api_keys.authenticate(tx, newer, key.plaintext)
        assert await api_keys.authenticate(tx, newer, fresh.plaintext)
        with pytest.raises(KeyUnavailable, match=r"pepper 2.*restore"):
            await api_keys.authenticate(tx, keyring, fresh.plaintext)


async def test_unknown_id_costs_what_a_wrong_secret_costs(
    db: Database, keyring: Keyring, key: api_keys.NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both make one query, read one row, and make one MAC and one comparison of one size."""
    work: list[tuple[str, int, int]] = []
    real_new, real_compare = hmac.new, hmac.compare_digest

    def counted_new(pepper: bytes, message: bytes, digest: object) -> object:
        work.append(("mac", len(pepper), len(message)))
        return real_new(pepper, message, hashlib.sha256)

    def counted_compare(a: bytes, b: bytes) -> bool:
        work.append(("compare", len(a), len(b)))
        return real_compare(a, b)

    monkeypatch.setattr(hmac, "new", counted_new)
    monkeypatch.setattr(hmac, "compare_digest", counted_compare)
    mine, fresh = key_format.read(key.plaintext), key_format.new_parts()
    assert mine is not None
    done = []
    async with db.snapshot() as tx:
        execute, queries, read = tx.execute, list[str](), list[list[list[type]]]()

        async def counted_execute(statement: object) -> object:
            queries.append(str(statement))
            rows = (await execute(statement)).freeze()  # type: ignore[call-overload]
            read.append([[type(value) for value in row[1:]] for row in rows()])
            return rows()

        monkeypatch.setattr(tx, "execute", counted_execute)
        for wrong in (fresh, dataclasses.replace(mine, secret=fresh.secret)):
            work.clear()
            queries.clear()
            assert await api_keys.authenticate(tx, keyring, key_format.write(wrong)) is None
            done.append((list(work), list(queries)))
    assert done[0] == done[1]
    assert [name for name, *_ in done[0][0]] == ["mac", "compare"]
    assert len(done[0][1]) == 1
    assert [len(rows) for rows in read] == [1, 1]
    assert read[0] == read[1]


async def test_last_used_only_moves_forward(db: Database, key: api_keys.NewKey) -> None:
    """The latest use wins, in whatever order several gateways report; unknown ids are ignored."""
    public_id, noon = key.record.public_id, datetime(2026, 6, 1, 12, tzinfo=UTC)
    for minutes, latest in ((0, 0), (5, 5), (-5, 5)):
        async with db.transaction() as tx:
            await api_keys.touch(
                tx, {public_id: noon + timedelta(minutes=minutes), "unknownkeyid": noon}
            )
            (listed,) = await api_keys.list_for(tx, "acme")
            assert listed.last_used_at == noon + timedelta(minutes=latest)
    async with db.transaction() as tx:
        await api_keys.touch(tx, {})


async def test_keys_are_listed_per_tenant(
    db: Database, keyring: Keyring, key: api_keys.NewKey
) -> None:
    """A tenant's list holds its own keys only."""
    async with db.transaction() as tx:
        await tenants.create(tx, keyring, "globex", actor=ACTOR)
        theirs = await api_keys.create(tx, keyring, "globex", actor=ACTOR)
        assert await api_keys.list_for(tx, "globex") == [theirs.record]
        assert await api_keys.list_for(tx, "acme") == [key.record]


async def test_no_models_is_null_in_the_database(db: Database, key: api_keys.NewKey) -> None:
    """No allow-list is SQL's NULL, not the JSON text null."""
    async with db.snapshot() as tx:
        count = text("SELECT count(*) FROM api_keys WHERE models IS NULL")
        assert (await tx.execute(count)).scalar_one() == 1


async def test_key_create_and_revoke_move_the_keys_epoch_only(
    db: Database, keyring: Keyring, key: api_keys.NewKey
) -> None:
    """Engines know no API keys, so nothing is pushed to them for one."""
    async with db.transaction() as tx:
        first = await changes.read(tx)
        await api_keys.create(tx, keyring, "acme", actor=ACTOR)
        second = await changes.read(tx)
        await api_keys.revoke(tx, key.record.public_id, actor=ACTOR)
        third = await changes.read(tx)
    assert first["keys"] < second["keys"] < third["keys"]
    assert len({epochs["authorisation"] for epochs in (first, second, third)}) == 1
