"""The gateway as a process: it starts or says why not, and ends in order when told to."""

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import asynccontextmanager

import httpx
import pytest
from gateway_world import WORDS, chat_body, eventually
from raw_http import read_answer, request
from vllm_shapes import chat_events

from saltwall_platform.errors import StartError
from saltwall_platform.gateway import Gateway

PROGRAM = (
    "from saltwall_platform.gateway import run; from saltwall_platform.settings import Settings"
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@asynccontextmanager
async def process(world, **environment: str):
    """A gateway in a process of its own, and a client for it; killed at the end if it still is."""
    port, admin_port = free_port(), free_port()
    variables = {
        "SALTWALL_HOME": str(world.home),
        "SALTWALL_PORT": str(port),
        "SALTWALL_ADMIN_PORT": str(admin_port),
        "SALTWALL_ENGINES": f'[{{"name": "demo", "url": "{world.engine.url}"}}]',
        **environment,
    }
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        f"{PROGRAM}; run(Settings())",
        env=os.environ | variables,
        stderr=asyncio.subprocess.PIPE,
    )
    ready = f"http://127.0.0.1:{admin_port}/readyz"
    base = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=base, headers=world.auth(), trust_env=False) as client:

        async def is_ready() -> bool:
            try:
                return (await client.get(ready)).status_code == 200
            except httpx.TransportError:
                return False

        try:
            await eventually(is_ready, 30)
            yield child, client
        finally:
            if child.returncode is None:
                child.kill()
            await child.communicate()


async def ends(child: asyncio.subprocess.Process) -> tuple[int, str]:
    """Its exit code and what it logged."""
    _, log = await asyncio.wait_for(child.communicate(), 10)
    assert child.returncode is not None
    return child.returncode, log.decode()


async def hold(connection, request):
    await connection.begin_stream()
    await connection.chunk(b"".join(chat_events(request.body, WORDS)[:3]))
    await asyncio.Event().wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_cleanly(world, number):
    async with process(world) as (child, client):
        assert (await client.post("/v1/chat/completions", json=chat_body())).status_code == 200
        child.send_signal(number)
        code, log = await ends(child)
    assert code == 0
    assert '"gateway stopped"' in log
    assert "Traceback" not in log
    assert "error" not in log
    assert (await world.used()).requests == 1


async def test_running_requests_get_a_grace_and_then_an_error(world):
    world.engine.script = hold
    async with process(world, SALTWALL_SHUTDOWN_GRACE_S="0.5") as (child, client):
        body = chat_body(stream=True)
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            child.terminate()
            data = await response.aread()
        code, _ = await ends(child)
    assert code == 0
    assert b'"code":"shutting_down"' in data.split(b"\n\n")[-2]
    await asyncio.wait_for(world.engine.received[0].gone.wait(), 1)
    assert (await world.used()).completion_tokens == 2


async def test_a_request_that_ends_within_the_grace_ends_well(world):
    go_on = asyncio.Event()

    async def script(connection, received):
        events = chat_events(received.body, WORDS)
        await connection.begin_stream()
        await connection.chunk(events[0])
        await go_on.wait()
        await connection.chunk(b"".join(events[1:]))
        await connection.end()

    world.engine.script = script
    async with process(world) as (child, client):
        body = chat_body(stream=True)
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            child.terminate()

            async def refuses() -> bool:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
                except ConnectionError:
                    return True
                writer.transport.abort()
                return False

            await eventually(refuses)
            go_on.set()
            assert (await response.aread()).endswith(b"data: [DONE]\n\n")
        code, _ = await ends(child)
    assert code == 0
    assert (await world.used()).completion_tokens == len(WORDS)


async def test_an_engine_sees_a_killed_gateways_requests_end(world):
    world.engine.script = hold
    async with process(world) as (child, client):
        body = chat_body(stream=True)
        async with client.stream("POST", "/v1/chat/completions", json=body):
            child.kill()
            await asyncio.wait_for(world.engine.received[0].gone.wait(), 1)


async def test_a_taken_port_is_named_with_its_setting(world):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=rf"port {port}.*SALTWALL_PORT"):
            Gateway(world.configure(port=port))
        with pytest.raises(StartError, match=rf"port {port}.*SALTWALL_ADMIN_PORT"):
            Gateway(world.configure(admin_port=port))


async def test_missing_keys_are_not_made_anew(world, tmp_path):
    with pytest.raises(StartError, match=r"gateway\.json"):
        Gateway(world.configure(keys_dir=tmp_path / "elsewhere"))
    assert not (tmp_path / "elsewhere").exists()


async def test_keys_that_others_can_read_are_refused(world):
    (world.home / "keys" / "gateway.json").chmod(0o644)
    with pytest.raises(StartError, match="chmod 600"):
        Gateway(world.configure())


async def test_an_unknown_kind_of_database_is_refused(world):
    with pytest.raises(StartError, match="sqlite:///"):
        Gateway(world.configure(database_url="mysql://x"))


async def test_a_request_that_was_still_being_sent_at_the_end_is_refused(world):
    body = json.dumps(chat_body()).encode()
    async with world.running(shutdown_grace_s=2) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        headers = {**world.auth(), "Content-Type": "application/json"}
        data = request("POST", "/v1/chat/completions", headers, body)
        writer.write(data[:-1])
        running = 'saltwall_requests_running{route="/v1/chat/completions"}'

        async def reading() -> bool:
            return await world.metric(running) == 1

        await eventually(reading)
        gateway.stop()
        await eventually(lambda: gateway._in_flight._closing)
        writer.write(data[-1:])
        answer = await read_answer(reader)
        assert answer.status == 503
        assert json.loads(answer.body)["error"]["code"] == "shutting_down"
        writer.transport.abort()
    assert not world.engine.received
