"""Two HTTP servers in one process, whose signals and lives the gateway holds itself."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from saltwall_platform.errors import StartError

BACKLOG = 2048
KEEP_ALIVE_S = 30
# A peer that vanished without a word, or never takes what is in its buffers: the kernel's to find.
PROBE_S = 30
UNTAKEN_MS = 180_000


class Listener(uvicorn.Server):
    """One server on one socket.

    Args:
        app: what answers.
        host: the address; a name is resolved once.
        port: 0 takes any free one.
        setting: the environment variable that changes the port, for the error message.
        grace_s: how long connections may stay once it was told to stop (seconds).

    Raises:
        StartError: the address is taken or not ours.
    """

    def __init__(self, app: ASGIApp, host: str, port: int, *, setting: str, grace_s: float) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",  # the one parser that is always installed
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=max(1, round(grace_s)),
            )
        )
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            raise StartError(
                f"cannot listen on {host}, port {port}: {error.strerror or error};"
                f" set {setting} to another port, or stop what uses it"
            ) from None
        # asyncio does this for sockets that say that they are TCP; ours does not.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", PROBE_S), ("TCP_USER_TIMEOUT", UNTAKEN_MS)):
            if hasattr(socket, option):  # Linux; connections inherit them
                self._socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        self.port: int = self._socket.getsockname()[1]

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals alone: one handler stops both servers."""
        yield

    async def run_until_stopped(self) -> None:
        """Serves until `should_exit` is set and the connections are gone."""
        await self.serve(sockets=[self._socket])

    def close(self) -> None:
        """Gives the address back, if it never served."""
        self._socket.close()
