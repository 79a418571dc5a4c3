"""A proxy between a gateway and an engine that keeps a copy of what it passes on."""

import threading
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from saltwall_security.raw_http import Reply, Wire

TIMEOUT_S = 120.0
DATA_PREFIX = "/v1/"
"""What is kept: requests of tenants, and not what gateway and engine say to each other."""
_OF_THE_CONNECTION = frozenset({"host", "connection", "content-length", "transfer-encoding"})


@dataclass(frozen=True)
class Recorded:
    """One request as it went over the wire."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)

    def header(self, name: str) -> str:
        """The header of this name (lower case), empty if there is none."""
        return next((value for key, value in self.headers if key == name), "")

    def with_header(self, name: str, value: str | None) -> "Recorded":
        """The same with another value of a header; None leaves it out."""
        rest = tuple(each for each in self.headers if each[0] != name)
        return replace(self, headers=rest if value is None else (*rest, (name, value)))

    def with_body(self, body: bytes) -> "Recorded":
        """The same with another body."""
        return replace(self, body=body)


class Recorder:
    """Serves on a free port of this machine, in the background, until it is left.

    `holds`: requests of tenants are kept and not passed on, and this status answers them; 0: they
    are passed on.

    Args:
        engine_url: where everything else is passed on to, unchanged.
    """

    def __init__(self, engine_url: str) -> None:
        self.requests: list[Recorded] = []
        self.holds = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(engine_url, self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Recorder":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(engine_url: str, recorder: Recorder) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            length = int(self.headers.get("content-length", 0))
            headers = tuple(
                (name.lower(), value)
                for name, value in self.headers.items()
                if name.lower() not in _OF_THE_CONNECTION
            )
            request = Recorded(self.command, self.path, headers, self.rfile.read(length))
            held = recorder.holds if request.path.startswith(DATA_PREFIX) else 0
            if request.path.startswith(DATA_PREFIX):
                recorder.requests.append(request)
            reply = Reply(held)
            if not held:
                with Wire(engine_url, TIMEOUT_S) as wire:
                    reply = wire.send(request.method, request.path, headers, request.body)
            self.send_response_only(reply.status or 502)
            for name, value in reply.headers:
                if name not in _OF_THE_CONNECTION:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        do_GET = do_POST = do_PUT = _pass_on  # noqa: N815  # the standard library's names

        def log_message(self, *args: Any) -> None:
            """Says nothing: requests hold tickets."""

    return Handler
