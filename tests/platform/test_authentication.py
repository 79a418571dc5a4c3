"""Who gets in: what a refused caller learns, and how stale an answer may be."""

import asyncio
from datetime import timedelta

import pytest
from gateway_world import eventually
from raw_http import request, send

from saltwall_platform.auth import Authenticator
from saltwall_platform.errors import ApiError
from saltwall_platform.freshness import MAX_STALENESS_S, Freshness
from saltwall_tenants import api_keys, key_format, tenants
from saltwall_tenants.clock import utc_now


async def test_refused_keys_cannot_be_told_apart(world):
    revoked = await world.change(
        lambda tx: api_keys.create(tx, world.keyring, "acme", actor="test")
    )
    await world.change(lambda tx: api_keys.revoke(tx, revoked.record.public_id, actor="test"))
    soon = utc_now() + timedelta(milliseconds=200)
    expired = await world.change(
        lambda tx: api_keys.create(tx, world.keyring, "acme", expires_at=soon, actor="test")
    )
    await eventually(lambda: utc_now() > soon)
    unknown = key_format.write(key_format.new_parts())
    good = world.acme_key.plaintext
    wrong_secret = key_format.write(
        key_format.KeyParts(world.acme_key.record.public_id, key_format.new_parts().secret)
    )
    keys = {
        "unknown": unknown,
        "wrong secret": wrong_secret,
        "revoked": revoked.plaintext,
        "expired": expired.plaintext,
        "bad checksum": good[:-1] + ("a" if good[-1] != "a" else "b"),
        "cut short": good[:-5],
        "not a key": "x",
        "too long": "sw_live_" + "a" * 5000,
    }
    async with world.running():
        answers = {}
        for name, key in keys.items():
            response = await world.chat(key)
            headers = dict(response.headers)
            assert headers.pop("x-request-id")
            answers[name] = (response.status_code, response.content, headers)
        status, body, _ = answers["unknown"]
        assert status == 401
        assert b"invalid_api_key" in body
        assert len({str(answer) for answer in answers.values()}) == 1, answers
        # And again, now that they are remembered.
        for key in keys.values():
            assert (await world.chat(key)).content == body
        assert not world.engine.received


async def test_only_a_bearer_key_is_a_key(up):
    key = up.acme_key.plaintext
    for value in (
        "",
        "Bearer",
        "Bearer ",
        f"Basic {key}",
        key,
        f"Bearer\t{key}",
        f"Bearer {key} x",
    ):
        answer = await send(up.gateway.port, request("GET", "/v1/models", {"Authorization": value}))
        assert answer.status == 401, value


async def test_two_authorization_headers_are_refused(up):
    good = up.auth()["authorization"]
    head = f"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: {good}\r\nauthorization: {good}"
    assert (await send(up.gateway.port, f"{head}\r\n\r\n".encode())).status == 401


async def test_a_key_that_is_not_ascii_is_refused(up):
    data = request("GET", "/v1/models", {"Authorization": "Bearer sw_live_\xfc"})
    assert (await send(up.gateway.port, data)).status == 401


async def test_a_missing_key_is_told_how_to_send_one(up):
    answer = await send(up.gateway.port, request("GET", "/v1/models", {}))
    assert answer.status == 401
    assert b"Authorization: Bearer" in answer.body
    assert dict(answer.headers)["www-authenticate"] == "Bearer"


async def test_the_scheme_is_not_case_sensitive(up):
    headers = {"Authorization": f"bearer {up.acme_key.plaintext}"}
    assert (await send(up.gateway.port, request("GET", "/v1/models", headers))).status == 200


async def test_a_suspended_tenant_is_told_so_and_comes_back_when_resumed(up):
    assert (await up.chat()).status_code == 200
    await up.change(lambda tx: tenants.suspend(tx, "acme", actor="test"))

    async def refused() -> bool:
        return (await up.chat()).status_code == 403

    await eventually(refused, MAX_STALENESS_S)
    response = await up.chat()
    assert response.json()["error"]["code"] == "tenant_suspended"
    assert (await up.client.get("/v1/models")).status_code == 403
    assert (await up.chat(up.globex_key)).status_code == 200
    await up.change(lambda tx: tenants.resume(tx, "acme", actor="test"))

    async def served() -> bool:
        return (await up.chat()).status_code == 200

    await eventually(served, 2)


async def test_a_new_key_works_within_a_second(up):
    fresh = await up.change(lambda tx: api_keys.create(tx, up.keyring, "acme", actor="test"))

    async def served() -> bool:
        return (await up.chat(fresh)).status_code == 200

    await eventually(served, 1)


async def test_a_revoked_key_stops_within_a_second(up):
    assert (await up.chat()).status_code == 200
    key = up.acme_key.record.public_id
    await up.change(lambda tx: api_keys.revoke(tx, key, actor="test"))

    async def refused() -> bool:
        return (await up.chat()).status_code == 401

    await eventually(refused, 1)


async def test_a_key_that_expires_stops_though_it_is_remembered(up):
    soon = utc_now() + timedelta(seconds=1)
    brief = await up.change(
        lambda tx: api_keys.create(tx, up.keyring, "acme", expires_at=soon, actor="test")
    )
    assert (await up.chat(brief)).status_code == 200
    await eventually(lambda: utc_now() > soon)
    assert (await up.chat(brief)).status_code == 401


class Unplugged:
    """A database whose connection can be pulled."""

    def __init__(self, database) -> None:
        self._database = database
        self.unplugged = False
        self.asked = 0

    def snapshot(self):
        self.asked += 1
        if self.unplugged:
            raise OSError("unplugged")
        return self._database.snapshot()


async def test_answers_are_remembered_while_the_database_says_nothing_changed(world):
    database = Unplugged(world.database)
    freshness = Freshness(database, 60)
    authenticator = Authenticator(database, world.keyring, freshness)
    await freshness.ensure()
    asked = database.asked
    for _ in range(5):
        await authenticator.check(world.acme_key.plaintext)
    assert database.asked == asked + 1
    for _ in range(5):
        with pytest.raises(ApiError):
            await authenticator.check(key_format.write(key_format.new_parts()))
    await authenticator.check(world.acme_key.plaintext)
    assert database.asked == asked + 6


async def test_a_change_forgets_them(world):
    freshness = Freshness(world.database, 60)
    authenticator = Authenticator(world.database, world.keyring, freshness)
    await freshness.ensure()
    await authenticator.check(world.acme_key.plaintext)
    key = world.acme_key.record.public_id
    await world.change(lambda tx: api_keys.revoke(tx, key, actor="test"))
    await freshness.ensure(max_age_s=0)
    with pytest.raises(ApiError) as caught:
        await authenticator.check(world.acme_key.plaintext)
    assert caught.value.status == 401


async def test_an_answer_read_before_a_change_was_seen_is_not_kept(world):
    freshness = Freshness(world.database, 60)
    authenticator = Authenticator(world.database, world.keyring, freshness)
    await freshness.ensure()
    before = asyncio.create_task(authenticator.check(world.acme_key.plaintext))
    await asyncio.sleep(0)  # it has begun to read
    await world.change(lambda tx: tenants.suspend(tx, "acme", actor="test"))
    await freshness.ensure(max_age_s=0)
    await asyncio.gather(before, return_exceptions=True)
    with pytest.raises(ApiError) as caught:
        await authenticator.check(world.acme_key.plaintext)
    assert caught.value.status == 403


async def test_without_the_database_nobody_is_let_in_after_a_second(up, monkeypatch):
    assert (await up.chat()).status_code == 200
    database = up.gateway.freshness._database

    def unplugged():
        raise OSError("unplugged")

    monkeypatch.setattr(database, "snapshot", unplugged)

    async def refused() -> bool:
        return (await up.chat()).status_code == 503

    await eventually(refused, MAX_STALENESS_S + 0.5)
    response = await up.chat()
    assert response.json()["error"]["code"] == "database_unavailable"
    assert response.headers["retry-after"]
    ready = await up.admin.get("/readyz")
    assert ready.status_code == 503
    assert "database" in ready.json()["reasons"][0]
    monkeypatch.undo()

    async def served() -> bool:
        return (await up.chat()).status_code == 200

    await eventually(served, 2)
