"""What a client is told when an engine is down, silent, broken, or refuses; and what recovers."""

import asyncio
import json

import pytest
from gateway_world import WORDS, answer_like_vllm, eventually, stay_silent
from scripted_engine import ScriptedEngine
from vllm_shapes import PROMPT_TOKENS, chat_events

from saltwall_platform import generate
from saltwall_tenants import tenants
from saltwall_tenants.wire import Refusal


def error_of(response):
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


async def begin(connection, request, count=3):
    await connection.begin_stream()
    await connection.chunk(b"".join(chat_events(request.body, WORDS)[:count]))


async def stream_end(world) -> tuple[bytes, str]:
    """A stream up to the error that ends it: what came before, and the error's code."""
    async with world.streaming() as response:
        assert response.status_code == 200
        data = await response.aread()
    *events, last, empty = data.split(b"\n\n")
    assert empty == b""
    code = json.loads(last.removeprefix(b"data: "))["error"]["code"]
    return b"".join(event + b"\n\n" for event in events), code


async def test_no_engine_is_503_with_a_time_to_come_back(world):
    await world.engine.stop()
    async with world.running(routable=False):
        response = await world.chat()
        assert response.status_code == 503
        assert int(response.headers["retry-after"]) > 0
        assert error_of(response)["code"] == "engine_unavailable"
        assert (await world.used()).requests == 0
        await world.engine.start()

        async def served() -> bool:
            return (await world.chat()).status_code == 200

        await eventually(served)


async def test_a_killed_engine_is_503_until_it_is_back_with_its_policy(up):
    assert (await up.chat()).status_code == 200
    await up.engine.stop()
    response = await up.chat()
    assert response.status_code == 503
    assert response.headers["retry-after"]
    await up.engine.start()

    async def served() -> bool:
        return (await up.chat()).status_code == 200

    await eventually(served)
    assert not up.engine.refuse
    assert up.engine.policy is not None
    assert await up.metric('saltwall_alarms_total{kind="ticket_refused"}') == 0


async def test_an_engine_killed_before_its_first_byte_is_503(up):
    async def script(connection, _request):
        connection.reset()

    up.engine.script = script
    response = await up.chat()
    assert response.status_code == 503
    assert response.headers["retry-after"]


async def test_an_engine_killed_in_mid_stream_ends_the_stream_with_an_error(up):
    async def script(connection, request):
        await begin(connection, request)
        connection.reset()

    up.engine.script = script
    before, code = await stream_end(up)
    assert before == b"".join(chat_events(up.engine.received[0].body, WORDS, natural=True)[:3])
    assert code == "engine_failed"
    await up.settled(requests=1, prompt_tokens=PROMPT_TOKENS, completion_tokens=2)


async def test_half_an_event_is_not_passed_on(up):
    async def script(connection, request):
        await begin(connection, request)
        await connection.chunk(b'data: {"half')
        connection.reset()

    up.engine.script = script
    before, code = await stream_end(up)
    assert b"half" not in before
    assert code == "engine_failed"


async def test_a_stream_that_just_ends_is_not_taken_for_whole(up):
    async def script(connection, request):
        await begin(connection, request, len(WORDS) + 1)
        await connection.end()

    up.engine.script = script
    before, code = await stream_end(up)
    assert b'"finish_reason":"stop"' in before
    assert code == "engine_failed"


async def test_an_empty_stream_is_an_error_status(up):
    async def script(connection, _request):
        await connection.begin_stream()
        await connection.end()

    up.engine.script = script
    async with up.streaming() as response:
        assert response.status_code == 502


async def test_silence_before_the_first_byte_is_504(world):
    world.engine.script = stay_silent
    async with world.running(first_byte_timeout_s=0.2):
        response = await world.chat()
        assert response.status_code == 504
        assert error_of(response)["code"] == "engine_timeout"
        async with world.streaming() as stream:
            assert stream.status_code == 504
        for received in world.engine.received:
            await asyncio.wait_for(received.gone.wait(), 1)
        await world.settled(requests=2)


async def test_silence_between_the_head_and_the_first_token_is_504(world):
    async def script(connection, _request):
        await connection.begin_stream()
        await asyncio.Event().wait()

    world.engine.script = script
    async with world.running(first_byte_timeout_s=0.2), world.streaming() as stream:
        assert stream.status_code == 504


async def test_silence_in_mid_stream_ends_the_stream_with_an_error(world):
    async def script(connection, request):
        await begin(connection, request)
        await asyncio.Event().wait()

    world.engine.script = script
    async with world.running(idle_timeout_s=0.2):
        before, code = await stream_end(world)
        assert before
        assert code == "engine_timeout"
        await asyncio.wait_for(world.engine.received[0].gone.wait(), 1)


async def test_keep_alive_comments_are_no_silence(world):
    over = asyncio.get_running_loop().time() + 2

    async def script(connection, request):
        await connection.begin_stream()
        while asyncio.get_running_loop().time() < over:
            await connection.chunk(b": keep-alive\n\n")
            await asyncio.sleep(0.05)
        for event in chat_events(request.body, WORDS):
            await connection.chunk(event)
        await connection.end()

    world.engine.script = script
    timeouts = {"idle_timeout_s": 1, "first_byte_timeout_s": 1}
    async with world.running(**timeouts), world.streaming() as stream:
        assert (await stream.aread()).endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_can_never_fit_is_told_all_the_numbers(up, stream):
    """The client's fault and not the platform's: passed on, no alarm, and the engine stays open."""
    message = (
        "180 prompt tokens and 20 to generate need 13 KV cache blocks, and you may use 10,"
        " which hold 160 tokens: shorten the prompt."
    )

    async def refuse(connection, _request):
        error = {"message": message, "type": "BadRequestError", "param": None, "code": 400}
        await connection.json(400, {"error": error})

    up.engine.script = refuse
    response = await up.chat(stream=stream, max_tokens=20)
    assert response.status_code == 400
    assert error_of(response)["message"] == message
    assert len(up.engine.received) == 1
    for kind in ("engine_denied", "ticket_refused"):
        assert await up.metric(f'saltwall_alarms_total{{kind="{kind}"}}') == 0
    assert await up.metric('saltwall_engine_routable{engine="demo"}') == 1


@pytest.mark.parametrize("status", [400, 404, 413, 422, 429])
async def test_a_4xx_of_the_engine_about_the_request_is_passed_on(up, status):
    error = {"message": "max_tokens is too large", "type": "BadRequestError", "param": "p"}

    async def script(connection, _request):
        await connection.json(status, {"error": {**error, "code": status}}, retry_after="7")

    up.engine.script = script
    response = await up.chat()
    assert response.status_code == status
    assert error_of(response) == {**error, "code": status}
    assert response.headers["retry-after"] == "7"
    assert (await up.used()).requests == 0


async def test_a_ticket_that_the_engine_quotes_does_not_reach_the_client(up):
    async def script(connection, request):
        ticket = request.body["cache_salt"]
        message = f"1 validation error: {{'input': '{ticket}', 'cut': '{ticket[:70]}...'}}"
        await connection.json(400, {"error": {"message": message, "param": ticket, "code": 400}})

    up.engine.script = script
    response = await up.chat()
    assert response.status_code == 400
    assert "sw1." not in response.text
    assert "1 validation error" in error_of(response)["message"]


@pytest.mark.parametrize("body", [b"", b"oops", b"[]", b'{"error":1}', b'{"error":{"message":7}}'])
async def test_an_engines_odd_error_becomes_a_clean_one(up, body):
    async def script(connection, _request):
        await connection.whole(400, body, "text/plain")

    up.engine.script = script
    response = await up.chat()
    assert response.status_code == 400
    assert error_of(response)["message"] == "The model server refused this request."


@pytest.mark.parametrize(
    ("status", "told"), [(500, 502), (501, 502), (302, 502), (502, 503), (503, 503), (504, 503)]
)
async def test_a_5xx_of_the_engine_tells_nothing_of_its_inside(up, status, told):
    async def script(connection, _request):
        await connection.json(status, {"error": {"message": "Traceback /usr/lib/secret.py"}})

    up.engine.script = script
    response = await up.chat()
    assert response.status_code == told
    assert "secret" not in response.text


@pytest.mark.parametrize("status", [401, 403, 405, 407, 415])
async def test_a_4xx_that_no_client_can_cause_is_our_fault(up, status):
    async def script(connection, _request):
        await connection.json(status, {"error": {"message": "who are you"}})

    up.engine.script = script
    response = await up.chat()
    assert response.status_code == 503
    assert await up.metric('saltwall_alarms_total{kind="engine_denied"}') == 1


async def test_an_answer_that_is_not_json_is_an_error(up):
    async def script(connection, _request):
        await connection.whole(200, b"<html>", "text/html")

    up.engine.script = script
    assert (await up.chat()).status_code == 502


async def test_a_refused_ticket_is_mended_without_the_client_noticing(up):
    policies = len(up.engine.policies)
    up.engine.refuse = [Refusal.UNKNOWN_GENERATION]
    assert (await up.chat()).status_code == 200
    first, second = up.engine.received
    assert first.body["cache_salt"] != second.body["cache_salt"]
    assert len(up.engine.policies) == policies + 1
    refusals = 'saltwall_engine_refusals_total{engine="demo",reason="unknown_generation"}'
    assert await up.metric(refusals) == 1
    assert await up.metric('saltwall_alarms_total{kind="ticket_refused"}') == 0
    await up.settled(requests=1)


async def test_a_ticket_refused_twice_is_503_and_an_alarm(up):
    up.engine.refuse = [Refusal.FORGED, Refusal.FORGED]
    response = await up.chat()
    assert response.status_code == 503
    assert response.headers["retry-after"]
    assert len(up.engine.received) == 2
    assert await up.metric('saltwall_alarms_total{kind="ticket_refused"}') == 1
    assert (await up.used()).requests == 0


async def test_a_refusal_that_no_push_can_mend_is_503(up, monkeypatch):
    monkeypatch.setattr(generate, "REPAIR_TIMEOUT_S", 0.3)
    up.engine.refuse = [Refusal.UNKNOWN_TENANT]
    up.engine.push_answers = [(503, {})] * 20
    assert (await up.chat()).status_code == 503


async def test_a_refusal_because_of_a_suspension_is_told_as_one(up):
    """The engine may know of a suspension before this gateway has polled."""

    async def suspend_then_refuse(connection, _request):
        await up.change(lambda tx: tenants.suspend(tx, "acme", actor="test"))
        await connection.json(403, {}, x_saltwall_refusal="unknown_tenant")

    up.engine.script = suspend_then_refuse
    response = await up.chat()
    assert response.status_code == 403
    assert error_of(response)["code"] == "tenant_suspended"
    assert await up.metric('saltwall_alarms_total{kind="ticket_refused"}') == 0


async def test_an_odd_refusal_does_not_make_a_new_label(up):
    async def script(connection, _request):
        await connection.json(403, {}, x_saltwall_refusal="odd-42")

    up.engine.script = script
    assert (await up.chat()).status_code == 503
    assert "odd-42" not in (await up.admin.get("/metrics")).text


async def test_a_request_that_cannot_reach_one_replica_is_served_by_another(world):
    other = ScriptedEngine(world.engine.keys, answer_like_vllm)
    await other.start()
    engines = [{"name": "demo", "url": engine.url} for engine in (world.engine, other)]
    async with world.running(engines=engines):
        await world.engine.stop()
        for _ in range(4):
            assert (await world.chat()).status_code == 200
        assert len(other.received) == 4
    await other.stop()
