"""The gate: only a genuine ticket, sealed into this very request, reaches a data route."""

import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx
import pytest
from bare_core import ACME, GLOBEX

from saltwall_tenants.wire import (
    SEAL_HEADER,
    Authorisation,
    EngineKeys,
    Lease,
    Policy,
    Ticket,
    TicketRoot,
    embed_ticket,
    make_seal,
    make_ticket,
)

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@dataclass
class Behind:
    """What stands behind the gate: remembers what got through."""

    seen: list[tuple[str, bytes, list[bytes]]] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers 200 to whatever comes."""
        body = (await receive()).get("body", b"") if scope["method"] != "GET" else b""
        self.seen.append((scope["path"], body, [name for name, _ in scope["headers"]]))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"through"})


@dataclass
class Rig:
    """A gate with real state and keys, an engine core without a model, and a client."""

    keys: EngineKeys
    state: Any
    behind: Behind
    client: httpx.AsyncClient

    def ticket(self, tenant: UUID = ACME, generation: int = 1, age: int = 0) -> str:
        """A genuine ticket, sealed `age` seconds ago."""
        content = Ticket(tenant, generation, b"s" * 32, int(time.time()) - age)
        return make_ticket(1, self.keys.tickets[1], self.keys.name, content)

    async def post(
        self, ticket: str, path: str = CHAT, *, sealed_path: str | None = None, **change: Any
    ) -> httpx.Response:
        """Sends a sealed request; `change` replaces its body, seal or headers afterwards."""
        body = embed_ticket({"model": "demo", "messages": []}, ticket)
        seal = make_seal(self.keys.seals[1], ticket, "POST", sealed_path or path, body)
        headers = {"content-type": "application/json", SEAL_HEADER: change.pop("seal", seal)}
        return await self.client.post(
            path,
            content=change.pop("body", body),
            headers=headers | change.pop("headers", {}),
            **change,
        )

    async def push(self, *, epoch: int = 1) -> None:
        """Pushes a policy that names acme and globex, generation 1."""
        allowed = {ACME: frozenset({1}), GLOBEX: frozenset({1})}
        await self.state.apply(Policy("demo", Lease(60), Authorisation(epoch, allowed)))


@pytest.fixture
async def rig(make_core: Callable[..., Any], engine_keys: EngineKeys) -> AsyncIterator[Rig]:
    """A gate that has attested and has a policy."""
    from saltwall_engine.api_state import ApiState
    from saltwall_engine.middleware import Gate

    state = ApiState(engine_keys, make_core())
    behind = Behind()
    transport = httpx.ASGITransport(Gate(behind, state))
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        rig = Rig(engine_keys, state, behind, client)
        await state.attest()
        await rig.push()
        yield rig


def refusal(response: httpx.Response) -> tuple[int, str | None]:
    """Status and reason of an OpenAI-style error."""
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    return response.status_code, response.headers.get("x-saltwall-refusal")


async def test_a_sealed_request_gets_through_whole(rig: Rig) -> None:
    """The control for every refusal: byte for byte, and with harmless headers only."""
    response = await rig.post(
        rig.ticket(), headers={"x-request-id": "1", "x-data-parallel-rank": "1", "cookie": "a=b"}
    )
    assert response.text == "through"
    ((path, body, headers),) = rig.behind.seen
    assert path == CHAT
    assert json.loads(body)["model"] == "demo"
    assert not {b"x-request-id", b"x-data-parallel-rank", b"cookie"} & set(headers)


async def test_what_is_not_this_request_is_refused(rig: Rig) -> None:
    """No seal, another's seal, another body, path, query or method: nothing gets through."""
    ticket, other = rig.ticket(), rig.ticket(GLOBEX)
    stolen = make_seal(rig.keys.seals[1], ticket, "POST", CHAT, embed_ticket({"a": 1}, ticket))
    body = embed_ticket({"model": "demo", "messages": [1]}, ticket)
    attempts = [
        await rig.client.post(CHAT, content=body),
        await rig.post(ticket, seal=""),
        await rig.post(ticket, seal=stolen),
        await rig.post(ticket, seal="A" * 43),
        await rig.post(ticket, seal="A" * 42 + "="),
        await rig.post(ticket, body=body),
        await rig.post(ticket, body=embed_ticket({"model": "demo", "messages": []}, other)),
        await rig.post(ticket, body=b""),
        await rig.post(ticket, body=b"{" * 100_000),
        await rig.post(ticket, body=b'{"cache_salt":"' + b"\xff\0" * 59 + b'"}'),
        await rig.post(ticket, COMPLETIONS, sealed_path=CHAT),
        await rig.post(ticket, params={"x": "1"}),
    ]
    assert {r.status_code for r in attempts} == {403}
    assert all(refusal(r)[1] in {"seal", "malformed", "forged"} for r in attempts)
    assert (await rig.client.put(CHAT, content=body)).status_code == 405
    assert rig.behind.seen == []


async def test_a_ticket_that_is_not_good_here_and_now_is_refused(rig: Rig) -> None:
    """Forged, old, future, other audience, unknown tenant, unknown generation: each by name."""
    forger = Rig(TicketRoot(b"f" * 32).engine_keys("demo"), rig.state, rig.behind, rig.client)
    other = TicketRoot(b"r" * 32).engine_keys("other")
    elsewhere = Rig(other, rig.state, rig.behind, rig.client)
    assert refusal(await forger.post(forger.ticket())) == (403, "forged")
    assert refusal(await elsewhere.post(elsewhere.ticket())) == (403, "forged")
    assert refusal(await rig.post(rig.ticket(age=70))) == (403, "expired")
    assert refusal(await rig.post(rig.ticket(age=-40))) == (403, "future")
    assert refusal(await rig.post(rig.ticket(UUID(int=9)))) == (403, "unknown_tenant")
    assert refusal(await rig.post(rig.ticket(generation=2))) == (403, "unknown_generation")
    assert rig.behind.seen == []
    assert (await rig.post(rig.ticket(age=50))).status_code == 200


async def test_the_seal_is_checked_before_the_body_is_read(rig: Rig) -> None:
    """Without a seal header not one byte of the body is awaited."""

    async def endless() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    response = await rig.client.post(CHAT, content=endless())
    assert refusal(response) == (403, "seal")


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_is_bounded(rig: Rig, monkeypatch: Any, declared: bool) -> None:
    """Over the limit is 413, whether the length was declared or is found out."""

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 1_000_000

    body: Any = b"x" * 40_000_000 if declared else chunks()
    assert refusal(await rig.post(rig.ticket(), body=body)) == (413, None)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/tokenize",
        "/detokenize",
        "/pooling",
        "/classify",
        "/score",
        "/rerank",
        "/invocations",
        "/ping",
        "/inference/v1/generate",
        "/v1/audio/transcriptions",
        "/v1/load_lora_adapter",
        "/reset_prefix_cache",
        "/collective_rpc",
        "/v1/chat/completions/",
        "//v1/chat/completions",
        "/V1/chat/completions",
        "/v1/chat/completions/render",
        "/openapi.json",
        "/saltwall",
    ],
)
async def test_every_other_route_does_not_exist(rig: Rig, path: str) -> None:
    """404 with or without a good ticket, and with the control secret."""
    secret = {"authorization": f"Bearer {rig.keys.control}"}
    assert refusal(await rig.client.get(path)) == (404, None)
    assert refusal(await rig.post(rig.ticket(), path)) == (404, None)
    assert refusal(await rig.client.get(path, headers=secret)) == (404, None)
    assert rig.behind.seen == []


@pytest.mark.parametrize("path", ["/metrics", "/docs", "/version", "/load", "/v1/models"])
async def test_operators_routes_need_the_control_secret(rig: Rig, path: str) -> None:
    """A ticket is no control secret, and neither is a prefix of it."""
    secret = rig.keys.control
    for given in ("", "Bearer ", f"Bearer {secret[:-1]}", f"Basic {secret}", secret, "Bearer é"):
        response = await rig.client.get(path, headers={"authorization": given.encode()})
        assert refusal(response) == (401, None)
    good = await rig.client.get(path, headers={"authorization": f"Bearer {secret}"})
    assert good.text == "through"


async def test_websockets_do_not_exist(rig: Rig) -> None:
    """A websocket handshake is answered 404 where the server can say so, closed where not."""
    from saltwall_engine.middleware import Gate

    for extensions, expected in (
        ({"websocket.http.response": {}}, "websocket.http.response.start"),
        ({}, "websocket.close"),
    ):
        sent: list[Any] = []

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        scope = {"type": "websocket", "path": "/v1/realtime", "extensions": extensions}
        await Gate(rig.behind, rig.state)(scope, _never, send)
        assert sent[0]["type"] == expected
        assert sent[0].get("status", 404) == 404
    assert rig.behind.seen == []


async def _never() -> Any:
    raise AssertionError("nothing is received")


async def test_a_mounted_server_serves_nothing(rig: Rig) -> None:
    """A root path would shift the routes below the allow-list."""
    from saltwall_engine.middleware import Gate

    transport = httpx.ASGITransport(Gate(rig.behind, rig.state), root_path="/v1")
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        assert (await client.get("/health")).status_code == 404


async def test_health_tells_a_ready_engine_from_one_that_must_not_serve(rig: Rig) -> None:
    """An expired lease is 503 with its reason, here and for a good ticket; a push mends it."""
    assert (await rig.client.get("/health")).text == "through"
    rig.state._lease_until = 0.0
    assert refusal(await rig.client.get("/health")) == (503, "lease_expired")
    assert refusal(await rig.post(rig.ticket())) == (503, "lease_expired")
    await rig.push()
    assert (await rig.client.get("/health")).status_code == 200


async def test_a_fresh_engine_is_not_ready(rig: Rig, make_core: Any) -> None:
    """Before it has attested, and then before it has a policy, it serves nobody."""
    from saltwall_engine.api_state import ApiState
    from saltwall_engine.middleware import Gate

    state = ApiState(rig.keys, make_core())
    transport = httpx.ASGITransport(Gate(rig.behind, state))
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        fresh = Rig(rig.keys, state, rig.behind, client)
        assert refusal(await client.get("/health")) == (503, "not_ready")
        await state.attest()
        assert refusal(await client.get("/health")) == (503, "no_policy")
        assert refusal(await fresh.post(fresh.ticket())) == (503, "no_policy")
    assert rig.behind.seen == []


async def test_wrong_vectors_are_never_ready(make_core: Any, engine_keys: EngineKeys) -> None:
    """An engine whose hashes differ from the published ones serves nobody, policy or not."""
    from saltwall_engine.api_state import ApiState
    from saltwall_tenants.wire import WireError

    core = make_core()
    core.scheduler.vector_digest = "0" * 64
    state = ApiState(engine_keys, core)
    await state.attest()
    assert state.attestation is not None
    assert state.attestation.problems("demo") != []
    with pytest.raises(WireError, match="not_ready"):
        state.check_ready()


async def test_an_older_or_contradicting_policy_is_refused_and_alarms(rig: Rig) -> None:
    """Epochs only grow, and one epoch has one content; a repeat renews the lease."""
    from saltwall_tenants.wire import WireError

    await rig.push(epoch=5)
    await rig.push(epoch=5)
    for epoch, reason in ((4, "stale_epoch"), (5, "epoch_conflict")):
        lesser = Policy("demo", Lease(60), Authorisation(epoch, {ACME: frozenset({1})}))
        with pytest.raises(WireError, match=reason):
            await rig.state.apply(lesser)
    assert (await rig.state.usage())["alarms"]["policy"] == 2
    assert (await rig.post(rig.ticket(GLOBEX))).status_code == 200


async def test_ten_thousand_tenants_are_pushed_and_one_revoked(rig: Rig) -> None:
    """The size that a real deployment has; the revoked one is refused by both halves."""
    many = {UUID(int=i): frozenset({1}) for i in range(1, 10_001)} | {ACME: frozenset({1})}
    await rig.state.apply(Policy("demo", Lease(60), Authorisation(2, many)))
    assert (await rig.post(rig.ticket())).status_code == 200
    del many[ACME]
    await rig.state.apply(Policy("demo", Lease(60), Authorisation(3, many)))
    assert refusal(await rig.post(rig.ticket())) == (403, "unknown_tenant")
    assert (await rig.post(rig.ticket(UUID(int=5000)))).status_code == 200
