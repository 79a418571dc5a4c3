"""An OpenAI-compatible server without a model that remembers prompts, in a thread."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class WordCache:
    """What it is and what it has seen.

    Args:
        keys: those that it lets in; None for everybody.
        apart: each key and each `cache_salt` has a cache of its own.
        shown: usage says how many tokens were cached.
        model: the one that it lists.
        refusal: what it says to whom it does not let in; it puts the key into the braces.
    """

    keys: frozenset[str] | None = None
    apart: bool = False
    shown: bool = True
    model: str = "words"
    refusal: str = "who are you?"
    url: str = ""
    callers: set[str] = field(default_factory=set)
    seen: set[tuple[Any, ...]] = field(default_factory=set)

    def answer(self, body: dict[str, Any], caller: str) -> dict[str, Any]:
        """A completion of one token."""
        prompt = str(body["prompt"])
        entry = (prompt, caller, body.get("cache_salt")) if self.apart else (prompt,)
        usage: dict[str, Any] = {"prompt_tokens": len(prompt.split()), "completion_tokens": 1}
        if self.shown:
            cached = usage["prompt_tokens"] if entry in self.seen else 0
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        self.seen.add(entry)
        return {"choices": [{"index": 0, "text": "salt"}], "usage": usage}


@contextmanager
def serving(cache: WordCache) -> Iterator[WordCache]:
    """Serves it on a port of its own until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._reply({"data": [{"id": cache.model}]} if self.path == "/v1/models" else None)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self._reply(cache.answer(body, self._caller()))

        def log_message(self, *args: Any) -> None:
            pass

        def _caller(self) -> str:
            return str(self.headers.get("authorization", "")).removeprefix("Bearer ")

        def _reply(self, document: dict[str, Any] | None) -> None:
            status = 404 if document is None else 200
            cache.callers.add(self._caller())
            if cache.keys is not None and self._caller() not in cache.keys:
                status, document = 401, {"error": {"message": cache.refusal.format(self._caller())}}
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    cache.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield cache
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
