"""The way back to the client: one status line, allow-listed headers, and no endless waiting."""

import asyncio
from collections.abc import Mapping

from starlette.types import Send

from saltwall_platform.errors import ApiError, ClientGone

# Of what an engine answers, only these headers go on; so does no cookie, server or debug header.
PASSED_ON = ("content-type", "cache-control", "retry-after")


class Reply:
    """One response.

    Args:
        send: the server's.
        request_id: for the `x-request-id` header.
        patience_s: how long the client may leave data unread before it counts as gone (seconds).
    """

    def __init__(self, send: Send, request_id: str, patience_s: float) -> None:
        self._send = send
        self._request_id = request_id
        self._patience_s = patience_s
        self.status: int | None = None
        self._streaming = False

    async def whole(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Sends a complete response."""
        await self._start(status, {**headers, "content-length": str(len(body))})
        await self._body(body, more=False)

    async def error(self, error: ApiError) -> None:
        """Sends an error, in the stream if one has begun; after a whole response, nothing."""
        if self.status is None:
            headers = {"content-type": "application/json", **error.headers}
            await self.whole(error.status, error.body(), headers)
        elif self._streaming:
            await self._body(error.event(), more=True)
            await self.end()

    async def begin(self, headers: Mapping[str, str]) -> None:
        """Begins a stream."""
        self._streaming = True
        await self._start(200, headers)

    async def part(self, data: bytes) -> None:
        """Sends some of the stream: whole events."""
        if data:
            await self._body(data, more=True)

    async def end(self) -> None:
        """Ends the stream."""
        self._streaming = False
        await self._body(b"", more=False)

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        sent = {"cache-control": "no-store", **headers, "x-request-id": self._request_id}
        encoded = [(k.encode("latin-1"), v.encode("latin-1", "replace")) for k, v in sent.items()]
        await self._deliver({"type": "http.response.start", "status": status, "headers": encoded})

    async def _body(self, data: bytes, *, more: bool) -> None:
        await self._deliver({"type": "http.response.body", "body": data, "more_body": more})

    async def _deliver(self, message: dict[str, object]) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                await self._send(message)
        except TimeoutError:
            self._streaming = False
            raise ClientGone from None
