"""Servers that only listen: one between gateway and engine, one where spans go."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx


@dataclass(frozen=True)
class Recorded:
    """One request as it came over the wire."""

    method: str
    path: str
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)


Answer = Callable[[Recorded], tuple[int, bytes]]


@contextmanager
def listening(
    answer: Callable[[Recorded], tuple[int, bytes]],
) -> Iterator[tuple[str, list[Recorded]]]:
    """Serves `answer` on a free port; yields its URL and what it has recorded so far."""
    seen: list[Recorded] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            length = int(self.headers.get("content-length", 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Recorded(self.command, self.path, headers, self.rfile.read(length))
            seen.append(request)
            status, body = answer(request)
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = _handle  # noqa: N815  # the standard library's names

        def log_message(self, *args: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def recording_proxy(target: str) -> Iterator[tuple[str, list[Recorded]]]:
    """Stands between a gateway and an engine, passes everything on and keeps a copy."""
    with httpx.Client(base_url=target, timeout=120, trust_env=False) as client:

        def forward(request: Recorded) -> tuple[int, bytes]:
            headers = {k: v for k, v in request.headers.items() if k not in ("host", "connection")}
            response = client.request(
                request.method, request.path, headers=headers, content=request.body
            )
            return response.status_code, response.content

        with listening(forward) as proxy:
            yield proxy
