"""Requests exactly as given, which a well-behaved client would not send, and whole answers."""

import http.client
import io
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from saltwall_security.abandonable import check_wanted
from saltwall_security.trust import system_trust

Headers = Iterable[tuple[str, str]]
MAX_ANSWER_BYTES = 2**22
LONGEST_S = 300.0
"""For a whole answer, however steadily it drips."""
_BROKEN = ("RemoteDisconnected", "BrokenPipeError", "ConnectionResetError")


@dataclass(frozen=True)
class Reply:
    """One answer.

    Args:
        status: None when there was none.
        headers: in order of arrival, names in lower case.
        took_s: from the first byte sent to the last one read.
        trouble: why there was no answer.
    """

    status: int | None
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    took_s: float = 0.0
    trouble: str = ""

    def header(self, name: str) -> str | None:
        """The first header of this name (lower case)."""
        return next((value for key, value in self.headers if key == name), None)


class Wire:
    """One connection, kept alive and made anew when it broke. It blocks: use it on a thread.

    Args:
        url: scheme, host and port; a path is ignored.
        timeout_s: silence for longer counts as no answer.
    """

    def __init__(self, url: str, timeout_s: float = 10.0) -> None:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme == "https":
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, parts.port, timeout=timeout_s, context=system_trust()
            )
        else:
            self._connection = http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
        self._connection.response_class = _Response

    def __enter__(self) -> "Wire":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def send(
        self,
        method: str,
        target: str,
        headers: Headers = (),
        body: bytes | None = None,
        *,
        declared: int | None = None,
    ) -> Reply:
        """Sends one request; never raises for what the server does.

        Args:
            target: the path as it goes over the wire.
            declared: the Content-Length to claim, in place of the body's (bytes).

        Raises:
            Abandoned: nobody waits for the answer any more.
        """
        check_wanted()
        kept_alive = self._connection.sock is not None
        reply = self._try(method, target, tuple(headers), body, declared)
        if reply.status is None and kept_alive and reply.trouble in _BROKEN:
            # The server may have closed an idle connection at the moment we used it.
            reply = self._try(method, target, tuple(headers), body, declared)
        return reply

    def _try(
        self, method: str, target: str, headers: Headers, body: bytes | None, declared: int | None
    ) -> Reply:
        connection = self._connection
        length = declared if declared is not None else len(body) if body else None
        try:
            if connection.sock is None:
                connection.connect()
            began = time.perf_counter()
            connection.putrequest(method, target, skip_accept_encoding=True)
            for name, value in headers:
                connection.putheader(name, value)
            if length is not None:
                connection.putheader("content-length", str(length))
            # A server that refuses before it has read all is right to: its answer is there.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.endheaders(body or None)
            answer = connection.getresponse()
            _acknowledge(connection.sock)
            content = answer.read(MAX_ANSWER_BYTES)
            took = time.perf_counter() - began
            given = tuple((name.lower(), value) for name, value in answer.getheaders())
            odd = declared is not None or any(name == "transfer-encoding" for name, _ in headers)
            if odd or not answer.isclosed():
                connection.close()
            return Reply(answer.status, given, content, took)
        except TimeoutError:
            connection.close()
            return Reply(None, trouble="no answer in time")
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return Reply(None, trouble=type(error).__name__)


class _Response(http.client.HTTPResponse):
    """Of which reading ends in `TimeoutError` after `LONGEST_S`."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_Timed(self.fp))


class _Timed(io.RawIOBase):
    def __init__(self, file: io.BufferedReader) -> None:
        self._file, self._until = file, time.monotonic() + LONGEST_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if time.monotonic() > self._until:
            raise TimeoutError
        return self._file.readinto1(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


def _acknowledge(connected: socket.socket | None) -> None:
    """Acknowledges at once what has come: a server that sends the rest of an answer only then
    (Nagle's algorithm) would hide what it takes itself behind our kernel's delay, 40 ms."""
    if connected is not None and hasattr(socket, "TCP_QUICKACK"):  # Linux
        with suppress(OSError):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
