"""No key, salt, ticket, control secret or prompt is left anywhere that people or tools look."""

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prompts import arguments
from recorder import Recorded
from running_stack import Stack, eventually

from saltwall_tenants import salts, tenants, wire
from saltwall_tenants.database import Database
from saltwall_tenants.keyring import Keyring

CANARY = "canary-9f3b1c77-prompt"
SCOPE = "canary-4d1e-scope"


def spellings(secret: bytes) -> set[bytes]:
    """How secret bytes could be written down: raw, hex, base64 of either alphabet, repr."""
    texts = {secret.hex().encode(), secret, repr(secret)[2:-1].encode()}
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        texts.add(encode(secret).rstrip(b"="))
    return texts


async def kv_secrets(home: Path) -> list[bytes]:
    """Every current tenant secret, and the KV salts derived from it."""
    keyring = Keyring.load(home / "keys")
    database = Database(f"sqlite:///{home / 'saltwall.db'}")
    found = []
    try:
        async with database.snapshot() as tx:
            for tenant in await tenants.list_all(tx):
                if tenant.status != "deleted":
                    secret = (await salts.current_secret(tx, keyring, tenant.id)).secret
                    found += [secret, wire.derive_kv_salt(secret, "demo")]
                    found.append(wire.derive_kv_salt(secret, "demo", SCOPE))
    finally:
        await database.dispose()
    return found


def needles(stack: Stack) -> dict[str, bytes]:
    """What must be nowhere, by name."""
    keyring = Keyring.load(stack.home / "keys")
    secrets = {f"kv secret {i}": s for i, s in enumerate(asyncio.run(kv_secrets(stack.home)))}
    secrets |= {f"kek {i}": key for i, key in keyring.keks.items()}
    secrets |= {f"pepper {i}": key for i, key in keyring.peppers.items()}
    secrets["ticket root"] = keyring.ticket_root.secret
    engine = keyring.ticket_root.engine_keys("demo")
    secrets |= {f"ticket key {i}": key for i, key in engine.tickets.items()}
    secrets |= {f"seal key {i}": key for i, key in engine.seals.items()}
    found = {
        f"{name} ({i})": text
        for name, secret in secrets.items()
        for i, text in enumerate(sorted(spellings(secret)))
    }
    for tenant, key in stack.keys.items():
        found[f"key of {tenant}"] = key.encode()
        found[f"secret of {tenant}'s key"] = key.split("_", 3)[3][:43].encode()
    found["control secret"] = engine.control.encode()
    found["a prompt"] = CANARY.encode()
    found["a client's scope"] = SCOPE.encode()
    return found


def places(stack: Stack, spans: list[Recorded]) -> Iterator[tuple[str, bytes]]:
    """Logs, database, spans, metrics, error bodies: everything that outlives a request."""
    for path in sorted(stack.home.rglob("*")):
        if path.is_file() and not {"keys", "models"} & set(path.relative_to(stack.home).parts):
            yield path.name, path.read_bytes()
    for i, span in enumerate(spans):
        yield f"span export {i}", span.body
    yield "gateway metrics", stack.admin("/metrics").content
    yield "readiness", stack.admin("/readyz").content
    yield "engine metrics", stack.engine("GET", "/metrics").content
    yield "engine usage", stack.engine("GET", "/saltwall/v1/usage").content
    for i, body in enumerate(stack.errors):
        yield f"error {i}", body
    for arguments_ in (["tenant", "list"], ["key", "list", "acme"], ["salt", "list", "acme"]):
        yield f"saltwall {arguments_}", stack.saltwall(*arguments_, "--json").stdout.encode()


def provoke(stack: Stack) -> None:
    """Sends the canary down every path: answered, streamed, refused, invalid, cut off."""
    good = arguments("chat", CANARY, cache_salt=SCOPE)
    for body in (
        good,
        good | {"stream": True},
        good | {"max_tokens": -1},
        good | {"max_tokens": CANARY},
        good | {"model": CANARY},
        good | {"messages": CANARY},
        good | {"messages": [{"role": CANARY, "content": {"x": CANARY}}]},
        good | {"temperature": CANARY, "logit_bias": {CANARY: 1}},
        good | {"cache_salt": [SCOPE, CANARY]},
        good | {"n": 10_000},
        good | {"max_tokens": 100_000},
        good | {"response_format": {"type": "json_schema", "json_schema": {"name": CANARY}}},
        good | {"structured_outputs": {"regex": f"({CANARY}"}},
    ):
        response = stack.post("/v1/chat/completions", json=body)
        assert response.status_code in (200, 400, 404, 422), response.text
    stack.post("/v1/chat/completions", content=f'{{"{CANARY}": '.encode())
    stack.post(f"/v1/{CANARY}", json=good)
    stack.post("/v1/chat/completions", json=good, key=stack.keys["acme"] + "x")
    stack.post("/v1/chat/completions", json=good, params={"api_key": stack.keys["globex"]})
    stack.post("/v1/chat/completions", json=good, headers={"x-request-id": CANARY})
    stack.engine("POST", "/v1/chat/completions", secret=False, json=good)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{stack.base_url}/chat/completions",
            headers={"authorization": f"Bearer {stack.keys['acme']}"},
            json=good | {"max_tokens": 3000, "min_tokens": 3000},
            timeout=httpx.Timeout(60, read=0.5),
            trust_env=False,
        )


def test_nothing_secret_is_left_anywhere(stack: Stack, spans: Any) -> None:
    """Every log line, span, metric, error body and the database, searched for every secret.

    That the search works is shown on what is there by right: the key's public id, the tenant's
    name and the request's route.
    """
    provoke(stack)
    eventually(lambda: stack.busy() == 0, 30)
    public_id = stack.keys["acme"].split("_")[2].encode()
    eventually(lambda: any(public_id in s.body or b"acme" in s.body for s in spans[1]), 30)
    searched = dict(places(stack, spans[1]))
    assert public_id in searched["gateway.log"]
    assert public_id in searched["saltwall.db"] + searched.get("saltwall.db-wal", b"")
    assert b"/v1/chat/completions" in searched["engine.log"]
    assert len(stack.errors) > 10
    found = {
        (place, name, content[:300] if "error" in place else b"")
        for place, content in searched.items()
        for name, needle in needles(stack).items()
        if needle in content
    }
    assert found == set()


def test_a_tenants_error_shows_it_only_its_own_words(stack: Stack) -> None:
    """A validation error may quote the request; never the ticket that the gateway put there."""
    assert all(b"sw1." not in body for body in stack.errors)
    body = arguments("chat", "x", max_tokens="many", cache_salt="mine")
    answer = stack.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert "sw1." not in json.dumps(answer.json())
