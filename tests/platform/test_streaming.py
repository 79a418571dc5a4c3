"""A client's stream is unchanged, comes as it is made, and its usage reaches the ledger."""

import asyncio
import json

import pytest
from gateway_world import WORDS
from vllm_shapes import CACHED_TOKENS, PROMPT_TOKENS, chat_events

BOTH = {"include_usage": True, "continuous_usage_stats": True}
OPTIONS = [None, {}, {"include_usage": False}, {"include_usage": True}, BOTH]


def natural(request, options) -> bytes:
    """What the client would have got without us."""
    body = {**request.body, "stream_options": options}
    return b"".join(chat_events(body, WORDS))


async def read(world, **fields) -> bytes:
    async with world.streaming(**fields) as response:
        assert response.status_code == 200
        return await response.aread()


async def test_the_stream_is_byte_for_byte_what_the_client_asked_for(up):
    for count, options in enumerate(OPTIONS, 1):
        fields = {} if options is None else {"stream_options": options}
        got = await read(up, **fields)
        assert got == natural(up.engine.received[-1], options), options
        await up.settled(
            requests=count,
            prompt_tokens=count * PROMPT_TOKENS,
            cached_tokens=count * CACHED_TOKENS,
            completion_tokens=count * len(WORDS),
        )


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_chunk_boundaries_do_not_matter(up, size):
    async def script(connection, request):
        stream = b"".join(chat_events(request.body, WORDS))
        await connection.begin_stream()
        for start in range(0, len(stream), size):
            await connection.chunk(stream[start : start + size])
        await connection.end()

    up.engine.script = script
    assert await read(up) == natural(up.engine.received[-1], None)
    await up.settled(requests=1, completion_tokens=len(WORDS))


async def test_events_arrive_as_they_are_made(up):
    told = asyncio.Event()

    async def script(connection, request):
        await connection.begin_stream()
        first, *others = chat_events(request.body, WORDS)
        await connection.chunk(first)
        await told.wait()
        await connection.chunk(b"".join(others))
        await connection.end()

    up.engine.script = script
    async with up.streaming() as response:
        parts = response.aiter_raw()
        first = await anext(parts)
        told.set()
        rest = b"".join([part async for part in parts])
    assert first + rest == natural(up.engine.received[0], None)


async def test_the_headers_of_a_stream_are_an_engines_content_type_and_ours(up):
    async with up.streaming() as response:
        await response.aread()
        headers = dict(response.headers)
    assert headers.pop("x-request-id")
    assert headers == {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-store",
        "transfer-encoding": "chunked",
    }


async def test_an_error_of_the_engine_inside_a_stream_reaches_the_client(up):
    error = b'data: {"error": {"message": "boom", "type": "x", "param": null, "code": 500}}\n\n'

    async def script(connection, request):
        await connection.begin_stream()
        opening = chat_events(request.body, WORDS)[:2]
        await connection.chunk(b"".join([*opening, error, b"data: [DONE]\n\n"]))
        await connection.end()

    up.engine.script = script
    assert (await read(up)).endswith(error + b"data: [DONE]\n\n")
    await up.settled(requests=1, prompt_tokens=PROMPT_TOKENS, completion_tokens=1)


async def test_a_whole_answer_is_settled_too(up):
    assert (await up.chat()).json()["usage"]["completion_tokens"] == 3
    await up.settled(
        requests=1, prompt_tokens=PROMPT_TOKENS, cached_tokens=CACHED_TOKENS, completion_tokens=3
    )
    assert (await up.used(up.globex)).requests == 0


async def test_usage_is_the_tenants_own(up):
    await asyncio.gather(*(up.chat(up.globex_key) for _ in range(5)), up.chat())
    await up.settled(requests=1)


async def test_the_openai_client_reads_it(up):
    from openai import AsyncOpenAI

    base = f"http://127.0.0.1:{up.gateway.port}/v1"
    messages = [{"role": "user", "content": "Hi"}]
    async with AsyncOpenAI(api_key=up.acme_key.plaintext, base_url=base) as client:
        stream = await client.chat.completions.create(
            model="demo", messages=messages, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "".join(
            WORDS
        )
        assert chunks[-1].usage.prompt_tokens_details.cached_tokens == CACHED_TOKENS
        assert [model.id async for model in client.models.list()] == ["demo"]


async def test_many_streams_at_once_do_not_mix(up):
    async def one(number: int) -> None:
        got = await read(up, user=str(number))
        mine = [r for r in up.engine.received if r.body["user"] == str(number)]
        assert got == natural(mine[0], None)
        assert json.loads(got.split(b"\n\n")[0][6:])["id"].endswith(mine[0].body["request_id"])

    await asyncio.gather(*map(one, range(30)))
    await up.settled(requests=30, completion_tokens=30 * len(WORDS))
