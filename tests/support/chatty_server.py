"""An OpenAI-compatible server that says too much, in its log or its answers, if it is told to."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from saltwall_security.target import Target, Tenant

PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/models")
KEYS = {"key-of-one-0123456789abcdef": "one", "key-of-two-0123456789abcdef": "two"}


@dataclass
class ChattyServer:
    """Answers with one word.

    Args:
        directory: where its log is.
        leak: "" for none, else where it says too much.
    """

    directory: Path
    leak: str = ""
    model: str = "words"
    origin: str = ""
    last: str = ""
    seen: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ChattyServer"]:
        """Serves on a port of its own."""
        routes = [Route("/{path:path}", self._any, methods=["GET", "POST", "PUT", "DELETE"])]
        config = uvicorn.Config(
            Starlette(routes=routes), host="127.0.0.1", port=0, log_level="error", lifespan="off"
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        try:
            while not server.started:  # noqa: ASYNC110  # uvicorn has no event for it
                await asyncio.sleep(0.001)
            self.origin = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
            yield self
        finally:
            server.should_exit = True
            await serving

    def target(self, **more: Any) -> Target:
        """It as the auditor is given it."""
        tenants = [Tenant(name, key) for key, name in KEYS.items()]
        given = {"files": [self.directory], **more}
        return Target(f"{self.origin}/v1", tenants, self.model, **given)

    def log(self, line: str) -> None:
        """Writes a line."""
        with (self.directory / "server.log").open("a") as file:
            file.write(line + "\n")

    async def _any(self, request: Request) -> Response:
        body = await request.body()
        credential = request.headers.get("authorization", "").removeprefix("Bearer ")
        known = credential in KEYS
        path = request.url.path
        if self.leak == "silent":
            return JSONResponse({"error": {"message": "no"}}, status_code=400)
        self.log(f"{request.method} {path if path in PATHS else '-'}")
        self._say(body, credential, known)
        if not known:
            said = f"no such key: {credential}" if self.leak == "answers repeat keys" else "no"
            return JSONResponse({"error": {"message": said}}, status_code=401)
        before, self.last = self.last, body.decode(errors="replace")
        said = self.last
        if self.leak == "answers of others" and KEYS[credential] == "two":
            said = before + "".join(self.seen)
        self.seen = [*self.seen, self.last] if KEYS[credential] == "one" else self.seen
        if self.leak == "errors quote":
            return JSONResponse({"error": {"message": said}}, status_code=400)
        return JSONResponse({"choices": [{"text": said}], "usage": {"prompt_tokens": 1}})

    def _say(self, body: bytes, credential: str, known: bool) -> None:
        match self.leak:
            case "prompts in the log":
                self.log(body.decode(errors="replace"))
            case "prompts in base64":
                self.log(base64.b64encode(b"x" + body).decode())
            case "token ids in the log":
                fields = _fields(body)
                if isinstance(fields.get("prompt"), list):
                    self.log(f"prompt_token_ids={fields['prompt']}")
            case "unknown keys in the log" if not known:
                self.log(f"refused {credential}")
            case "known keys in the log" if known:
                self.log(f"served {credential}")
            case "tickets in the log":
                self.log(f"cache_salt=sw1.{'A' * 114}")
            case "a database":
                path = self.directory / "server.db"
                if not path.exists():
                    path.write_bytes(b"SQLite format 3\0" + bytes(84) + self.model.encode())
                with path.open("ab") as file:
                    file.write(body)
            case _:
                pass


def _fields(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
