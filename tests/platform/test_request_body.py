"""A body is bounded whatever its framing claims, and nothing is sent on that is not whole."""

import asyncio
import json

from gateway_world import chat_body, eventually
from raw_http import Answer, read_answer, request, send

from saltwall_platform import request_body

LIMIT = 20_000
JSON = {"Content-Type": "application/json"}
CHAT = "/v1/chat/completions"


def padded(size: int) -> bytes:
    """A good body of exactly that many bytes."""
    body = json.dumps(chat_body(user="")).encode()
    return body.replace(b'"user": ""', b'"user": "' + b"x" * (size - len(body)) + b'"')


def chunked(body: bytes, size: int = 1000) -> bytes:
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


async def post(world, headers: dict[str, str], body: bytes) -> Answer:
    data = request("POST", CHAT, {**world.auth(), **JSON, **headers}, body)
    return await send(world.gateway.port, data)


async def test_the_limit_is_exact_however_the_body_is_framed(world):
    async with world.running(max_body_bytes=LIMIT):
        framed = {"Transfer-Encoding": "chunked"}
        for size, status in ((LIMIT, 200), (LIMIT + 1, 413), (50 * LIMIT, 413)):
            assert (await post(world, {}, padded(size))).status == status
            assert (await post(world, framed, chunked(padded(size)))).status == status
        assert len(world.engine.received) == 2
        answer = await post(world, framed, chunked(padded(2 * LIMIT)))
        assert json.loads(answer.body)["error"]["code"] == "body_too_large"


async def test_a_declared_size_over_the_limit_is_refused_before_it_is_sent(world):
    async with world.running(max_body_bytes=LIMIT):
        for size in (LIMIT + 1, 10**19):
            headers = {"Content-Length": str(size), "Expect": "100-continue"}
            assert (await post(world, headers, b"")).status == 413


async def test_a_body_longer_than_it_declares_is_cut_at_what_it_declares(up):
    answer = await post(up, {"Content-Length": "20"}, padded(500))
    assert answer.status == 400
    assert not up.engine.received


async def test_a_body_shorter_than_it_declares_is_never_sent_on(up):
    headers = {**up.auth(), **JSON, "Content-Length": "600"}
    reader, writer = await asyncio.open_connection("127.0.0.1", up.gateway.port)
    writer.write(request("POST", CHAT, headers, padded(500)))
    await writer.drain()
    writer.close()
    await writer.wait_closed()

    async def noticed() -> bool:
        route = f'route="{CHAT}",status="4xx"'
        return await up.metric(f"saltwall_requests_total{{{route}}}") == 1

    await eventually(noticed)
    assert not up.engine.received
    assert not await reader.read()


async def test_a_body_that_dribbles_in_is_given_up(up, monkeypatch):
    monkeypatch.setattr(request_body, "BODY_TIMEOUT_S", 0.2)
    headers = {**up.auth(), **JSON, "Content-Length": "600"}
    reader, writer = await asyncio.open_connection("127.0.0.1", up.gateway.port)
    writer.write(request("POST", CHAT, headers, b"{"))
    answer = await read_answer(reader)
    assert answer.status == 408
    writer.transport.abort()


async def test_a_body_is_plain_json(up):
    for headers in (
        {"Content-Encoding": "gzip"},
        {"Content-Encoding": "identity, br"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/jsonp"},
        {"Content-Type": ""},
    ):
        assert (await post(up, headers, padded(500))).status == 415, headers
    for headers in (
        {"Content-Type": "application/json; charset=utf-8"},
        {"Content-Type": "Application/JSON"},
        {"Content-Encoding": "identity"},
    ):
        assert (await post(up, headers, padded(500))).status == 200, headers


async def test_broken_bodies_are_refused_and_never_sent_on(up):
    for body in (
        b"",
        b"[]",
        b'{"model":"demo","model":"demo"}',
        b'{"model":"demo","temperature":NaN}',
        b'{"model":"demo","x":' + b"[" * 100_000,
        b'{"model":"demo","x":"\\ud800"}',
        b"\xef\xbb\xbf{}",
        b'{"model":"demo","cache_salt":7}',
        b'{"model":"demo","n":65}',
    ):
        answer = await post(up, {}, body)
        assert answer.status == 400, body
        assert json.loads(answer.body)["error"]["type"] == "invalid_request_error"
    assert not up.engine.received
    assert (await up.chat()).status_code == 200


async def test_a_body_is_not_read_before_its_sender_is_known(up):
    headers = {**JSON, "Authorization": "Bearer nobody", "Content-Length": "600"}
    answer = await send(up.gateway.port, request("POST", CHAT, headers, b""))
    assert answer.status == 401
