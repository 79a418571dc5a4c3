"""An engine that a test scripts byte by byte; it checks tickets, seals and policies as a real one.

The real engine is exercised by the end-to-end tests. This one does what a real one does only in
bad moments: silence, resets, odd chunk boundaries, refusals.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from saltwall_tenants.wire import (
    ALGORITHM,
    SEAL_HEADER,
    VECTOR_DIGEST,
    Attestation,
    Capacity,
    EngineKeys,
    Policy,
    Quotas,
    Refusal,
    Ticket,
    WireError,
    check_seal,
    open_ticket,
)
from saltwall_tenants.wire.seal import read_ticket

GENERATION = ("/v1/chat/completions", "/v1/completions")


@dataclass(eq=False)
class Received:
    """A request that reached the engine; `gone` is set when its connection was closed."""

    path: str
    headers: list[tuple[str, str]]
    raw: bytes
    body: dict[str, Any]
    ticket: Ticket | None = None
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class Connection:
    """The engine's end of one connection, for scripts to write to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def raw(self, data: bytes) -> None:
        """Writes bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    async def whole(
        self, status: int, body: bytes, content_type: str = "application/json", **headers: str
    ) -> None:
        """Writes a response with a length."""
        lines = [f"HTTP/1.1 {status} Whatever", f"content-type: {content_type}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        lines += [f"content-length: {len(body)}", "", ""]
        await self.raw("\r\n".join(lines).encode() + body)

    async def json(self, status: int, document: Any, **headers: str) -> None:
        """Writes a JSON response."""
        await self.whole(status, json.dumps(document).encode(), **headers)

    async def begin_stream(self, **headers: str) -> None:
        """Writes the head of an event stream."""
        lines = ["HTTP/1.1 200 OK", "content-type: text/event-stream; charset=utf-8"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.raw("\r\n".join([*lines, "transfer-encoding: chunked", "", ""]).encode())

    async def chunk(self, data: bytes) -> None:
        """Writes one HTTP chunk."""
        await self.raw(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def end(self) -> None:
        """Ends a chunked response."""
        await self.raw(b"0\r\n\r\n")

    def reset(self) -> None:
        """Drops the connection."""
        self.writer.transport.abort()


Script = Callable[[Connection, Received], Awaitable[None]]


class ScriptedEngine:
    """Answers control routes as an engine does, and requests as `script` does."""

    def __init__(self, keys: EngineKeys, script: Script) -> None:
        self.keys = keys
        self.script = script
        self.attestation = Attestation(
            keys.name, ALGORITHM, VECTOR_DIGEST, "0.32.0", "0.1.0", Capacity(320, 32, 2**20)
        )
        self.policy: Policy | None = None
        self.quotas: Quotas | None = None
        self.usage: dict[str, Any] = {"tenants": {}}
        self.policies: list[Policy] = []
        self.received: list[Received] = []
        self.refuse: list[Refusal] = []
        self.push_answers: list[tuple[int, Any]] = []
        self.may_answer_pushes = asyncio.Event()
        self.may_answer_pushes.set()
        self.health: str = ""
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listens, on the same port as before if there was one."""
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Ends as a killed process does: connections drop, and the policy is forgotten."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.policy = self.quotas = None

    def attest(self, **changes: Any) -> None:
        """Changes what it says of itself."""
        self.attestation = replace(self.attestation, **changes)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._one(Connection(reader, writer)):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _one(self, connection: Connection) -> bool:
        head = await connection.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        method, path, _ = first.split(" ")
        headers = [(n.lower(), v.strip()) for n, _, v in (line.partition(":") for line in lines)]
        size = int(dict(headers).get("content-length", "0"))
        body = await connection.reader.readexactly(size)
        if method == "POST" and path in GENERATION:
            return await self._generate(connection, path, headers, body)
        await self._control(connection, method, path, dict(headers), body)
        return True

    async def _control(
        self, connection: Connection, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> None:
        if path == "/health":
            reason = "no_policy" if self.policy is None else self.health
            await connection.json(503 if reason else 200, {"reason": reason})
        elif headers.get("authorization") != f"Bearer {self.keys.control}":
            await connection.json(401, {"error": {"message": "control secret"}})
        elif (method, path) == ("GET", "/saltwall/v1/attestation"):
            await connection.whole(200, self.attestation.encode())
        elif (method, path) == ("PUT", "/saltwall/v1/policy"):
            await self.may_answer_pushes.wait()
            if self.push_answers:
                await connection.json(*self.push_answers.pop(0))
                return
            policy = Policy.decode(body, self.keys.name)
            policy.authorisation.check_successor(self.policy and self.policy.authorisation)
            self.policy = policy
            self.policies.append(policy)
            answer = {"authorisation_epoch": policy.authorisation.epoch}
            await connection.json(200, answer | self._take_quotas(policy))
        elif (method, path) == ("GET", "/saltwall/v1/usage"):
            await connection.json(200, self.usage)
        else:
            await connection.json(404, {"error": {"message": "no such route"}})

    def _take_quotas(self, policy: Policy) -> dict[str, Any]:
        """Takes, or refuses, the quota section; an engine of the first release knows none."""
        capacity = self.attestation.capacity
        if capacity is None:
            assert policy.quotas is None
            return {}
        before = self.quotas.epoch if self.quotas else None
        try:
            if isinstance(policy.quotas, WireError):
                raise policy.quotas
            if policy.quotas is not None:
                policy.quotas.check_successor(self.quotas)
                policy.quotas.blocks(capacity)
                self.quotas = policy.quotas
        except WireError as error:
            refused = {"refused": str(error), "reason": error.refusal, "epoch_in_force": before}
            return {"quotas": refused}
        return {"quotas": {"epoch": self.quotas and self.quotas.epoch}}

    async def _generate(
        self, connection: Connection, path: str, headers: list[tuple[str, str]], raw: bytes
    ) -> bool:
        request = Received(path, headers, raw, json.loads(raw))
        self.received.append(request)
        try:
            if self.refuse:
                raise WireError(self.refuse.pop(0))
            request.ticket = self._admit(request)
        except WireError as error:
            await connection.json(
                403,
                {"error": {"message": "refused", "type": "x", "param": None, "code": "x"}},
                x_saltwall_refusal=error.refusal,
            )
            return True
        work = asyncio.ensure_future(self.script(connection, request))
        gone = asyncio.ensure_future(connection.reader.read(1))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() or isinstance(work.exception(), ConnectionError):
                request.gone.set()
                return False
            work.result()
            return not connection.writer.is_closing()
        finally:
            work.cancel()
            gone.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    def _admit(self, request: Received) -> Ticket:
        text = read_ticket(request.raw)
        key_id, ticket = open_ticket(text, self.keys.tickets, self.keys.name)
        seal = dict(request.headers).get(SEAL_HEADER, "")
        digest = hashlib.sha256(request.raw).digest()
        check_seal(self.keys.seals[key_id], seal, text, "POST", request.path, digest)
        if self.policy is None:
            raise WireError(Refusal.NO_POLICY)
        self.policy.authorisation.check(ticket.tenant, ticket.generation)
        return ticket
