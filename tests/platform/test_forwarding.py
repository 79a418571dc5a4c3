"""What an engine is sent: a fresh sealed ticket, our fields, and none of the client's headers."""

import asyncio
import time
from contextlib import AsyncExitStack

from gateway_world import chat_body
from scripted_engine import ScriptedEngine

from saltwall_tenants import salts
from saltwall_tenants.wire import derive_kv_salt

THEIRS = {
    "x-request-id": "theirs",
    "x-data-parallel-rank": "1",
    "x-session-id": "theirs",
    "x-saltwall-seal": "theirs",
    "x-forwarded-for": "192.0.2.1",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "cookie": "a=b",
    "user-agent": "theirs",
    "accept": "text/event-stream",
    "priority": "0",
}


async def secret_of(world, tenant) -> salts.SaltSecret:
    async with world.database.snapshot() as tx:
        return await salts.current_secret(tx, world.keyring, tenant.id)


async def test_an_engine_sees_only_headers_that_are_ours(up):
    await up.client.post("/v1/chat/completions", json=chat_body(), headers={**up.auth(), **THEIRS})
    names = [name for name, _ in up.engine.received[0].headers]
    assert sorted(names) == [
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "host",
        "user-agent",
        "x-saltwall-seal",
    ]
    values = dict(up.engine.received[0].headers)
    assert values["accept"] == "text/event-stream"
    assert "theirs" not in values.values()
    assert up.acme_key.plaintext not in str(values)


async def test_a_ticket_is_of_the_keys_tenant_and_of_now(up):
    for key, tenant in ((up.acme_key, up.acme), (up.globex_key, up.globex)):
        before = int(time.time())
        assert (await up.chat(key)).status_code == 200
        ticket = up.engine.received[-1].ticket
        assert ticket.tenant == tenant.id
        assert before <= ticket.issued_at <= time.time()
        secret = await secret_of(up, tenant)
        assert ticket.generation == secret.generation == 1
        assert ticket.salt == derive_kv_salt(secret.secret, "demo", "")


async def test_each_request_has_its_own_ticket_and_the_same_salt(up):
    for _ in range(2):
        await up.chat()
    first, second = up.engine.received
    assert first.body["cache_salt"] != second.body["cache_salt"]
    assert first.ticket.salt == second.ticket.salt


async def test_a_clients_cache_salt_partitions_inside_its_tenant_only(up):
    seen = {}
    for key, name in ((up.acme_key, "acme"), (up.globex_key, "globex")):
        for scope in ("", "a", "b"):
            fields = {"cache_salt": scope} if scope else {}
            await up.chat(key, **fields)
            seen[name, scope] = up.engine.received[-1].ticket.salt
    assert len(set(seen.values())) == 6
    await up.chat(cache_salt="a")
    assert up.engine.received[-1].ticket.salt == seen["acme", "a"]
    secret = await secret_of(up, up.acme)
    assert seen["acme", "a"] == derive_kv_salt(secret.secret, "demo", "a")


async def test_the_engine_is_called_by_our_request_id(up):
    response = await up.chat(request_id="theirs")
    ours = response.headers["x-request-id"]
    assert up.engine.received[0].body["request_id"] == ours
    assert ours != "theirs"


async def test_a_ticket_is_made_for_the_deployment_that_serves_the_model(world):
    engines = [{"name": "demo", "url": world.engine.url, "models": ["demo", "adapter"]}]
    async with world.running(engines=engines):
        await world.chat(model="adapter")
        await world.chat(model="demo")
    adapter, demo = world.engine.received
    assert adapter.body["model"] == "adapter"
    assert adapter.ticket.salt == demo.ticket.salt


async def test_completions_go_to_their_own_route(up):
    response = await up.client.post("/v1/completions", json={"model": "demo", "prompt": ["a"]})
    assert response.status_code == 200
    assert up.engine.received[0].path == "/v1/completions"


async def test_an_answer_is_passed_on_byte_for_byte_with_listed_headers_only(up):
    body = b'{ "usage" :{"prompt_tokens":1},"choices":[],\n"odd":"\\u00fc" }'

    async def script(connection, _request):
        await connection.whole(
            200,
            body,
            "application/json; charset=utf-8",
            server="uvicorn",
            set_cookie="a=b",
            x_request_id="theirs",
            x_debug="secret",
            cache_control="no-cache",
        )

    up.engine.script = script
    response = await up.chat()
    assert response.content == body
    headers = dict(response.headers)
    assert headers.pop("x-request-id") != "theirs"
    assert headers == {
        "content-type": "application/json; charset=utf-8",
        "cache-control": "no-cache",
        "content-length": str(len(body)),
    }


async def test_an_engines_cookie_is_not_kept_for_the_next_tenant(up):
    async def script(connection, _request):
        await connection.json(200, {"usage": {}}, set_cookie="session=acme; Path=/")

    up.engine.script = script
    await up.chat()
    await up.chat(up.globex_key)
    assert "cookie" not in dict(up.engine.received[1].headers)


async def test_a_proxy_in_the_environment_gets_no_tickets(world, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with world.running():
        monkeypatch.undo()
        assert (await world.chat()).status_code == 200


async def hold_open(connection, _request):
    await connection.begin_stream()
    await connection.chunk(b": hello\n\n")
    await asyncio.Event().wait()


async def test_a_request_goes_to_the_replica_with_the_fewest_of_ours(world):
    other = ScriptedEngine(world.engine.keys, hold_open)
    await other.start()
    world.engine.script = hold_open
    engines = [{"name": "demo", "url": engine.url} for engine in (world.engine, other)]
    async with world.running(engines=engines), AsyncExitStack() as streams:
        for _ in range(6):
            await streams.enter_async_context(world.streaming())
        assert [len(world.engine.received), len(other.received)] == [3, 3]
    await other.stop()
