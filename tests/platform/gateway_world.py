"""A gateway on real sockets with everything around it, and what its tests read well with."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from scripted_engine import Connection, Received, ScriptedEngine
from vllm_shapes import chat_events, whole

from saltwall_platform.gateway import Gateway
from saltwall_platform.settings import Settings
from saltwall_tenants import api_keys, tenants, usage
from saltwall_tenants.api_keys import NewKey
from saltwall_tenants.database import Database
from saltwall_tenants.keyring import Keyring
from saltwall_tenants.tenants import Tenant
from saltwall_tenants.usage import UsageTotals

DEADLINE_S = 10.0
WORDS = ["Hello", ' "wörld"', ",", ' {"usage":{"prompt_tokens":9}}', "!"]


async def eventually(
    truth: Callable[[], Awaitable[bool]] | Callable[[], bool], within_s: float = DEADLINE_S
) -> None:
    """Waits until something is so; the deadline is the claim, or only keeps a test from hanging."""
    async with asyncio.timeout(within_s):
        while True:
            result = truth()
            if (await result) if isinstance(result, Awaitable) else result:
                return
            await asyncio.sleep(0.01)


async def answer_like_vllm(connection: Connection, request: Received) -> None:
    """The engine's usual script: a short answer, streamed if asked for."""
    if not request.body.get("stream"):
        await connection.json(200, whole(request.body))
        return
    await connection.begin_stream()
    for event in chat_events(request.body, WORDS):
        await connection.chunk(event)
    await connection.end()


async def stay_silent(_connection: Connection, _request: Received) -> None:
    """Never answers."""
    await asyncio.Event().wait()


@dataclass
class World:
    """Everything around a gateway, and shortcuts that tests read well with."""

    home: Path
    keyring: Keyring
    database_url: str
    database: Database
    engine: ScriptedEngine
    acme: Tenant
    globex: Tenant
    acme_key: NewKey
    globex_key: NewKey
    gateway: Gateway = field(init=False)
    client: httpx.AsyncClient = field(init=False)
    admin: httpx.AsyncClient = field(init=False)

    def configure(self, **changes: Any) -> Settings:
        """The settings of a gateway in this world."""
        fields: dict[str, Any] = {
            "home": self.home,
            "database_url": self.database_url,
            "port": 0,
            "admin_port": 0,
            "engines": [{"name": "demo", "url": self.engine.url}],
            "shutdown_grace_s": 0.5,
        }
        return Settings(**(fields | changes))

    @asynccontextmanager
    async def running(self, *, routable: bool = True, **changes: Any) -> AsyncIterator[Gateway]:
        """Runs a gateway in this world."""
        self.gateway = Gateway(self.configure(**changes))
        serving = asyncio.create_task(self.gateway.serve())
        base = "http://127.0.0.1:{}".format
        async with (
            httpx.AsyncClient(
                base_url=base(self.gateway.port),
                timeout=DEADLINE_S,
                headers=self.auth(),
                trust_env=False,
            ) as self.client,
            httpx.AsyncClient(
                base_url=base(self.gateway.admin_port), timeout=DEADLINE_S, trust_env=False
            ) as self.admin,
        ):
            try:
                if routable:
                    await eventually(lambda: all(r.routable for r in self.gateway.replicas))
                yield self.gateway
            finally:
                self.gateway.stop()
                await asyncio.wait_for(serving, DEADLINE_S)

    def auth(self, key: NewKey | str | None = None) -> dict[str, str]:
        """The header that a key goes in; acme's by default."""
        text = key if isinstance(key, str) else (key or self.acme_key).plaintext
        return {"authorization": f"Bearer {text}"}

    async def chat(self, key: NewKey | str | None = None, **fields: Any) -> httpx.Response:
        """Sends a chat request and reads the answer whole."""
        return await self.client.post(
            "/v1/chat/completions", json=chat_body(**fields), headers=self.auth(key)
        )

    def streaming(self, **fields: Any) -> Any:
        """Opens a chat stream."""
        body = chat_body(stream=True, **fields)
        return self.client.stream("POST", "/v1/chat/completions", json=body)

    async def change(self, act: Callable[[Any], Awaitable[Any]]) -> Any:
        """Runs one transaction, as the command line would."""
        async with self.database.transaction() as tx:
            return await act(tx)

    async def used(self, tenant: Tenant | None = None) -> UsageTotals:
        """What the ledger says of a tenant; acme by default."""
        async with self.database.snapshot() as tx:
            return await usage.totals(tx, (tenant or self.acme).id)

    async def settled(self, **expected: int) -> None:
        """Waits until acme's ledger has exactly these totals."""

        async def agrees() -> bool:
            totals = await self.used()
            return all(getattr(totals, name) == value for name, value in expected.items())

        try:
            await eventually(agrees, 5)
        except TimeoutError:
            assert await self.used() == expected

    async def metric(self, line: str) -> float:
        """The value of one sample of /metrics, 0 when it is not there."""
        for sample in (await self.admin.get("/metrics")).text.splitlines():
            name, _, value = sample.rpartition(" ")
            if name == line:
                return float(value)
        return 0.0


@asynccontextmanager
async def new_world(home: Path, database_url: str) -> AsyncIterator[World]:
    """Makes keys, two tenants with a key each in a migrated database, and a listening engine."""
    keyring, database = Keyring.create(home / "keys"), Database(database_url)
    async with database.transaction() as tx:
        acme = await tenants.create(tx, keyring, "acme", actor="test")
        globex = await tenants.create(tx, keyring, "globex", actor="test")
        keys = [await api_keys.create(tx, keyring, t, actor="test") for t in (acme, globex)]
    engine = ScriptedEngine(keyring.ticket_root.engine_keys("demo"), answer_like_vllm)
    await engine.start()
    yield World(home, keyring, database_url, database, engine, acme, globex, *keys)
    await engine.stop()
    await database.dispose()


def chat_body(**fields: Any) -> dict[str, Any]:
    """A chat request."""
    return {"model": "demo", "messages": [{"role": "user", "content": "Hi"}], **fields}
