"""A client that goes away frees the engine within a second, and what it used is settled."""

import asyncio
import json

from gateway_world import answer_like_vllm, chat_body, eventually, stay_silent
from raw_http import request
from sqlalchemy import text
from vllm_shapes import PROMPT_TOKENS, chat_events

WITHIN_S = 1.0
MANY = ["word"] * 1000


async def endless(connection, request):
    """Streams for ever, slowly enough to be interrupted between events."""
    await connection.begin_stream()
    for event in chat_events(request.body, MANY)[:4]:
        await connection.chunk(event)
    await asyncio.Event().wait()


async def begin_whole_answer(connection, _request):
    await connection.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")
    await asyncio.Event().wait()


async def connect(world, **fields):
    """Sends a chat request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
    headers = {**world.auth(), "Content-Type": "application/json"}
    body = json.dumps(chat_body(**fields)).encode()
    writer.write(request("POST", "/v1/chat/completions", headers, body))
    await eventually(lambda: len(world.engine.received) == 1)
    return reader, writer


async def gone(world) -> None:
    await asyncio.wait_for(world.engine.received[0].gone.wait(), WITHIN_S)
    running = 'saltwall_requests_running{route="/v1/chat/completions"}'

    async def ended() -> bool:
        return await world.metric(running) == 0

    await eventually(ended, WITHIN_S)
    assert len(world.gateway._in_flight) == 0
    assert [replica.requests for replica in world.gateway.replicas] == [0]


async def test_a_disconnect_before_the_first_token_reaches_the_engine(up):
    up.engine.script = stay_silent
    _, writer = await connect(up, stream=True)
    writer.close()
    await gone(up)
    await up.settled(requests=1, completion_tokens=0)


async def test_a_disconnect_between_the_head_and_the_first_token_reaches_the_engine(up):
    async def script(connection, _request):
        await connection.begin_stream()
        await asyncio.Event().wait()

    up.engine.script = script
    _, writer = await connect(up, stream=True)
    writer.close()
    await gone(up)
    await up.settled(requests=1)


async def test_a_disconnect_in_mid_stream_reaches_the_engine_and_is_charged_for_what_came(up):
    up.engine.script = endless
    reader, writer = await connect(up, stream=True)
    await reader.readuntil(b"word")
    writer.close()
    await gone(up)
    await up.settled(requests=1, prompt_tokens=PROMPT_TOKENS, completion_tokens=3)


async def test_a_disconnect_without_a_stream_reaches_the_engine(up):
    up.engine.script = stay_silent
    _, writer = await connect(up)
    writer.close()
    await gone(up)
    await up.settled(requests=1)


async def test_a_disconnect_while_a_whole_answer_arrives_reaches_the_engine(up):
    up.engine.script = begin_whole_answer
    _, writer = await connect(up)
    writer.close()
    await gone(up)
    await up.settled(requests=1)


async def test_a_reset_is_a_disconnect(up):
    up.engine.script = endless
    reader, writer = await connect(up, stream=True)
    await reader.readuntil(b"word")
    writer.transport.abort()
    await gone(up)


async def test_a_half_closed_connection_is_a_disconnect(up):
    up.engine.script = stay_silent
    _, writer = await connect(up)
    writer.write_eof()
    await gone(up)
    writer.close()


async def test_a_client_that_goes_away_counts_as_499(up):
    up.engine.script = stay_silent
    _, writer = await connect(up)
    writer.close()
    await gone(up)
    await up.settled(requests=1)
    async with up.database.snapshot() as tx:
        assert (await tx.execute(text("SELECT status FROM usage"))).scalar_one() == 499


async def test_a_client_that_stops_reading_is_cut_in_the_end(world):
    sent = asyncio.Event()

    async def flood(connection, request):
        await connection.begin_stream()
        event = b": " + b"x" * 65_000 + b"\n\n"
        sent.set()
        while True:
            await connection.chunk(event)

    world.engine.script = flood
    async with world.running(idle_timeout_s=0.5):
        _, writer = await connect(world, stream=True)
        await sent.wait()
        await asyncio.wait_for(world.engine.received[0].gone.wait(), 5)
        writer.transport.abort()


async def test_a_connection_serves_on_after_another_was_cut(up):
    up.engine.script = endless
    reader, writer = await connect(up, stream=True)
    await reader.readuntil(b"word")
    writer.close()
    await gone(up)
    up.engine.script = answer_like_vllm
    for _ in range(3):
        assert (await up.chat()).status_code == 200
