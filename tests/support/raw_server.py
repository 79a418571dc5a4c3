"""A server that answers every request with the same bytes, well-formed or not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

OK = b"HTTP/1.1 200 OK\r\n"


class RawServer:
    """Serves `begins`, and then `drips` again and again, each after `pause_s`.

    Args:
        begins: the status line, headers, and as much of the body as there is at once.
        drips: None for an answer that ends there.
    """

    def __init__(self, begins: bytes, drips: bytes | None = None, pause_s: float = 0.0) -> None:
        self._begins, self._drips, self._pause_s = begins, drips, pause_s
        self.heads: list[bytes] = []
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["RawServer"]:
        """On a port of its own; `url` is the base of its routes."""
        serving: set[asyncio.Task[None]] = set()

        def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            serving.add(asyncio.create_task(self._serve(reader, writer)))

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        try:
            yield self
        finally:
            server.close()
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self._begins)
            await writer.drain()
            while self._drips is not None:
                writer.write(self._drips)
                await writer.drain()
                await asyncio.sleep(self._pause_s)  # what is slow about it
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
