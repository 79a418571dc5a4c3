"""Losing one's right ends what one is running, within a second, and nobody else's."""

import asyncio
import json
from datetime import timedelta

from gateway_world import WORDS, eventually, stay_silent
from vllm_shapes import PROMPT_TOKENS, chat_events

from saltwall_tenants import api_keys, tenants
from saltwall_tenants.clock import utc_now

WITHIN_S = 1.0


async def hold(connection, request):
    await connection.begin_stream()
    await connection.chunk(b"".join(chat_events(request.body, WORDS)[:3]))
    await asyncio.Event().wait()


async def end_of(response) -> tuple[bytes, dict[str, object]]:
    """Reads a stream to its end; the error it ends with."""
    async with asyncio.timeout(WITHIN_S):
        data = await response.aread()
    assert data.endswith(b"\n\n")
    last = data.split(b"\n\n")[-2]
    return data, json.loads(last.removeprefix(b"data: "))["error"]


async def test_a_revoked_keys_stream_ends_with_an_error(up):
    up.engine.script = hold
    async with up.streaming() as response:
        key = up.acme_key.record.public_id
        await up.change(lambda tx: api_keys.revoke(tx, key, actor="test"))
        data, error = await end_of(response)
    assert error["code"] == "invalid_api_key"
    natural = b"".join(chat_events(up.engine.received[0].body, WORDS, natural=True)[:3])
    assert data.startswith(natural)
    await asyncio.wait_for(up.engine.received[0].gone.wait(), WITHIN_S)
    await up.settled(requests=1, prompt_tokens=PROMPT_TOKENS, completion_tokens=2)


async def test_a_suspended_tenants_streams_end_and_others_go_on(up):
    up.engine.script = hold
    async with up.streaming() as acme:
        body = {"model": "demo", "messages": [], "stream": True}
        auth = up.auth(up.globex_key)
        async with up.client.stream(
            "POST", "/v1/chat/completions", json=body, headers=auth
        ) as globex:
            await up.change(lambda tx: tenants.suspend(tx, "acme", actor="test"))
            _, error = await end_of(acme)
            assert error["code"] == "tenant_suspended"
            assert not up.engine.received[1].gone.is_set()
            assert globex.status_code == 200


async def test_a_request_that_waits_for_its_first_byte_is_cut_with_a_status(up):
    up.engine.script = stay_silent
    waiting = asyncio.create_task(up.chat())
    await eventually(lambda: bool(up.engine.received))
    await up.change(lambda tx: tenants.suspend(tx, "acme", actor="test"))
    response = await asyncio.wait_for(waiting, WITHIN_S)
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "tenant_suspended"
    await asyncio.wait_for(up.engine.received[0].gone.wait(), WITHIN_S)


async def test_a_deleted_tenants_requests_are_cut(up):
    up.engine.script = hold
    async with up.streaming() as response:
        await up.change(lambda tx: tenants.delete(tx, "acme", actor="test"))
        _, error = await end_of(response)
    assert error["code"] == "invalid_api_key"


async def test_a_key_that_expires_takes_its_requests_along(up):
    up.engine.script = hold
    soon = utc_now() + timedelta(seconds=0.7)
    brief = await up.change(
        lambda tx: api_keys.create(tx, up.keyring, "acme", expires_at=soon, actor="test")
    )
    body = {"model": "demo", "messages": [], "stream": True}
    async with up.client.stream(
        "POST", "/v1/chat/completions", json=body, headers=up.auth(brief)
    ) as response:
        async with asyncio.timeout(0.7 + WITHIN_S):
            data = await response.aread()
    assert b"invalid_api_key" in data


async def test_another_keys_revocation_leaves_a_stream_alone(up):
    other = await up.change(lambda tx: api_keys.create(tx, up.keyring, "acme", actor="test"))
    done = asyncio.Event()

    async def script(connection, request):
        events = chat_events(request.body, WORDS)
        await connection.begin_stream()
        await connection.chunk(events[0])
        await done.wait()
        await connection.chunk(b"".join(events[1:]))
        await connection.end()

    up.engine.script = script
    async with up.streaming() as response:
        version = up.gateway.freshness.version
        await up.change(lambda tx: api_keys.revoke(tx, other.record.public_id, actor="test"))
        await eventually(lambda: up.gateway.freshness.version != version)
        assert len(up.gateway._in_flight) == 1
        done.set()
        assert (await response.aread()).endswith(b"data: [DONE]\n\n")
