"""What connections to the gateway are set to."""

import asyncio
import socket
from typing import Any

from saltwall_platform.listeners import Listener


async def test_nothing_waits_for_an_acknowledgement() -> None:
    """Nagle's algorithm is off: it holds back a stream's next event until the last has arrived."""
    seen: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for connection in server.server_state.connections:
            accepted = connection.transport.get_extra_info("socket")
            seen.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    server = Listener(app, "127.0.0.1", 0, setting="SALTWALL_PORT", grace_s=1)
    serving = asyncio.create_task(server.run_until_stopped())
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert b"204" in await reader.readline()
    writer.close()
    server.should_exit = True
    await serving
    assert seen == [1]
