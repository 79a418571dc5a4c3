"""An adversary who reaches the engine's port, and has watched genuine requests go by, gets nothing.

Genuine tickets and seals come from a recording proxy between a second gateway and the engine: no
endpoint mints them.
"""

import json
import random
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from recorder import Recorded, recording_proxy
from running_stack import SALTWALL, Stack, eventually, free_ports

from saltwall_tenants.keyring import Keyring

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SEAL = "x-saltwall-seal"
NOISE = random.Random(1).randbytes(4096)
SALT_FIELD = b'{"cache_salt":"'


@pytest.fixture(scope="module")
def spied(stack: Stack) -> Iterator[tuple[str, list[Recorded]]]:
    """A second gateway, same tenants, behind which every engine request is recorded."""
    port, admin_port = free_ports(2)
    with recording_proxy(stack.ready["engine_url"]) as (proxy, seen):
        environ = stack.environ | {
            "SALTWALL_PORT": str(port),
            "SALTWALL_ADMIN_PORT": str(admin_port),
            "SALTWALL_ENGINES": json.dumps([{"name": "demo", "url": proxy}]),
        }
        log = (stack.home / "logs" / "spied-gateway.log").open("wb")
        gateway = subprocess.Popen([*SALTWALL, "gateway"], env=environ, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{admin_port}/readyz"
            eventually(lambda: _status(url) == 200, 60)
            yield f"http://127.0.0.1:{port}", seen
        finally:
            gateway.terminate()
            gateway.wait(timeout=30)
            log.close()


def _status(url: str) -> int | None:
    try:
        return httpx.get(url, trust_env=False).status_code
    except httpx.HTTPError:
        return None


@pytest.fixture
def genuine(stack: Stack, spied: Any) -> Recorded:
    """acme's latest genuine chat request, as it went over the wire just now."""
    return record(stack, spied, "acme")


def record(stack: Stack, spied: Any, tenant: str, key: str | None = None) -> Recorded:
    """Sends a chat request through the spied-on gateway and returns what the engine was sent."""
    url, seen = spied
    response = httpx.post(
        url + CHAT,
        headers={"authorization": f"Bearer {key or stack.keys[tenant]}"},
        json={
            "model": "demo",
            "max_tokens": 2,
            "messages": [{"role": "user", "content": "Say something about salt."}],
        },
        timeout=120,
        trust_env=False,
    )
    assert response.status_code == 200, response.text
    return next(request for request in reversed(seen) if request.path == CHAT)


def replay(stack: Stack, request: Recorded, path: str = CHAT, **change: Any) -> httpx.Response:
    """Sends a recorded request to the engine itself; `change` replaces body, seal or query."""
    headers = {
        "content-type": "application/json",
        SEAL: change.pop("seal", request.headers[SEAL]),
    }
    body = change.pop("body", request.body)
    return stack.engine("POST", path, secret=False, headers=headers, content=body, **change)


def ticket_of(request: Recorded) -> bytes:
    """The ticket in a recorded request."""
    return request.body[len(SALT_FIELD) : len(SALT_FIELD) + 118]


def still_serves(stack: Stack, request: Recorded) -> None:
    """The control: the same genuine request, unchanged, is answered."""
    assert replay(stack, request).status_code == 200


def refused(response: httpx.Response, *statuses: int) -> None:
    """An OpenAI-style error of one of these statuses."""
    assert response.status_code in (statuses or (403,)), response.text
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


def test_the_spy_sees_a_ticket_in_place_of_what_the_client_wrote(genuine: Recorded) -> None:
    """What is replayed below is real: sealed, and of the published length."""
    assert ticket_of(genuine).startswith(b"sw1.")
    assert len(json.loads(genuine.body)["cache_salt"]) == 118
    assert len(genuine.headers[SEAL]) == 43
    assert "authorization" not in genuine.headers


def test_without_a_ticket_or_a_seal_nothing_is_served(stack: Stack, genuine: Recorded) -> None:
    """No ticket, no seal, a client's own salt, an API key instead: refused."""
    fields = json.loads(genuine.body)
    naked = json.dumps({k: v for k, v in fields.items() if k != "cache_salt"}).encode()
    key = {"authorization": f"Bearer {stack.keys['acme']}"}
    refused(stack.engine("POST", CHAT, secret=False, content=genuine.body))
    refused(stack.engine("POST", CHAT, secret=False, content=naked, headers=key))
    refused(replay(stack, genuine, seal=""))
    refused(replay(stack, genuine, body=naked))
    refused(replay(stack, genuine, body=json.dumps(fields | {"cache_salt": "mine"}).encode()))
    still_serves(stack, genuine)


def test_a_forged_or_altered_ticket_or_seal_is_refused(stack: Stack, genuine: Recorded) -> None:
    """One flipped character anywhere in ticket or seal, or both made up, is refused."""
    ticket, seal = ticket_of(genuine), genuine.headers[SEAL]

    def flipped(text: str, at: int) -> str:
        return text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]

    for at in (4, 6, 30, 90, 117):
        altered = flipped(ticket.decode(), at).encode()
        refused(replay(stack, genuine, body=genuine.body.replace(ticket, altered)))
    for at in (0, 20, 42):
        refused(replay(stack, genuine, seal=flipped(seal, at)))
    made_up = b"sw1." + b"A" * 114
    refused(replay(stack, genuine, body=genuine.body.replace(ticket, made_up), seal="A" * 43))
    still_serves(stack, genuine)


def test_a_genuine_ticket_opens_no_other_request(
    stack: Stack, spied: Any, genuine: Recorded
) -> None:
    """Moved to another body, path, query, model or tenant's body, it is refused."""
    fields = json.loads(genuine.body)
    other = record(stack, spied, "globex")
    again = json.dumps(fields | {"max_tokens": 3}, separators=(",", ":")).encode()
    elsewhere = json.dumps(fields | {"model": "other"}, separators=(",", ":")).encode()
    refused(replay(stack, genuine, body=again))
    refused(replay(stack, genuine, body=elsewhere))
    refused(replay(stack, genuine, body=genuine.body + b" "))
    refused(replay(stack, genuine, path=COMPLETIONS))
    refused(replay(stack, genuine, path="/v1/embeddings"))
    refused(replay(stack, genuine, params={"a": "1"}))
    refused(replay(stack, genuine, seal=other.headers[SEAL]))
    refused(replay(stack, other, body=other.body.replace(ticket_of(other), ticket_of(genuine))))
    still_serves(stack, genuine)


def test_an_old_ticket_and_another_audiences_are_refused(stack: Stack, genuine: Recorded) -> None:
    """Sealed with this installation's own keys, but 70 s ago, or for another model: refused."""
    import time
    from uuid import UUID

    from saltwall_tenants import wire

    keyring = Keyring.load(stack.home / "keys")
    acme = UUID(stack_tenant(stack, "acme"))

    def attempt(name: str, age: int) -> httpx.Response:
        keys = keyring.ticket_root.engine_keys(name)
        content = wire.Ticket(acme, 1, b"s" * 32, int(time.time()) - age)
        ticket = wire.make_ticket(1, keys.tickets[1], name, content)
        body = wire.embed_ticket(json.loads(genuine.body), ticket)
        seal = wire.make_seal(keys.seals[1], ticket, "POST", CHAT, body)
        return replay(stack, genuine, body=body, seal=seal)

    assert attempt("demo", 0).status_code == 200
    for name, age in (("demo", 70), ("demo", -40), ("other", 0)):
        refused(attempt(name, age))


def stack_tenant(stack: Stack, name: str) -> str:
    """A tenant's id."""
    shown = json.loads(stack.saltwall("tenant", "show", name, "--json").stdout)
    return str(shown["id"])


def test_tickets_of_suspended_and_unknown_tenants_are_refused(stack: Stack, spied: Any) -> None:
    """A genuine ticket dies with its tenant's standing, and lives again with it."""
    stack.saltwall("tenant", "create", "shady")
    made = json.loads(stack.saltwall("key", "create", "shady", "--json").stdout)
    genuine = record(stack, spied, "shady", made["key"])
    still_serves(stack, genuine)
    stack.saltwall("tenant", "suspend", "shady")
    eventually(lambda: replay(stack, genuine).status_code == 403, 5)
    stack.saltwall("tenant", "resume", "shady")
    eventually(lambda: replay(stack, genuine).status_code == 200, 5)
    stack.saltwall("tenant", "delete", "shady", "--yes")
    eventually(lambda: replay(stack, genuine).status_code == 403, 5)
    assert replay(stack, genuine).headers["x-saltwall-refusal"] == "unknown_tenant"
    still_serves(stack, record(stack, spied, "acme"))


@pytest.mark.parametrize(
    "salt",
    [
        b'""',
        b"null",
        b"7",
        b"true",
        b"[]",
        b'{"a":"b"}',
        b'"' + b"x" * 1_000_000 + b'"',
        b'"\\u0000"',
        b'"\x00"',
        b'"\xff\xfe"',
        b'"' + b"A" * 118 + b'"',
        b"[" * 50_000 + b"]" * 50_000,
        b'"sw1.' + b"A" * 114 + b'","cache_salt":"mine"',
    ],
    ids=lambda salt: repr(salt[:12]),
)
def test_the_engine_survives_any_cache_salt(stack: Stack, genuine: Recorded, salt: bytes) -> None:
    """Malformed in every way JSON allows and some that it does not: a clean 4xx each time."""
    rest = genuine.body[len(SALT_FIELD) + 119 :]
    refused(replay(stack, genuine, body=SALT_FIELD[:-1] + salt + rest), 400, 403)
    still_serves(stack, genuine)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b"[]", b"\x00", NOISE, b"{" * 100_000, b"x" * 33_000_000],
    ids=lambda body: f"{body[:4]!r}x{len(body)}",
)
def test_the_engine_survives_any_body(stack: Stack, genuine: Recorded, body: bytes) -> None:
    """Empty, cut off, no JSON, deep, random, huge: a clean 4xx each time."""
    refused(replay(stack, genuine, body=body), 400, 403, 413)
    still_serves(stack, genuine)


@pytest.mark.parametrize(
    "path",
    ["/tokenize", "/invocations", "/ping", "/pooling", "/score", "/v1/audio/speech", "/", "/v2"],
)
def test_unlisted_routes_do_not_exist(stack: Stack, genuine: Recorded, path: str) -> None:
    """404 with a genuine ticket, without one, and with the control secret."""
    refused(replay(stack, genuine, path=path), 404)
    refused(stack.engine("GET", path, secret=False), 404)
    refused(stack.engine("POST", path), 404)


def test_control_routes_need_the_control_secret(stack: Stack, genuine: Recorded) -> None:
    """Policy, usage, purge, attestation, metrics, docs: no ticket and no API key opens them."""
    for method, path in (
        ("PUT", "/saltwall/v1/policy"),
        ("GET", "/saltwall/v1/usage"),
        ("GET", "/saltwall/v1/attestation"),
        ("POST", f"/saltwall/v1/tenants/{'0' * 32}/purge"),
        ("GET", "/metrics"),
        ("GET", "/docs"),
        ("GET", "/version"),
        ("GET", "/load"),
        ("GET", "/v1/models"),
    ):
        key = {"authorization": f"Bearer {stack.keys['acme']}", SEAL: genuine.headers[SEAL]}
        refused(stack.engine(method, path, secret=False), 401)
        refused(stack.engine(method, path, secret=False, headers=key), 401)
    assert stack.engine("GET", "/saltwall/v1/usage").status_code == 200
    attestation = stack.engine("GET", "/saltwall/v1/attestation").json()
    assert attestation["algorithm"] == "sha256_cbor"
