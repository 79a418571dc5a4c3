"""Logs, spans, metrics and errors say what happened, and never what was said or with which key."""

import asyncio
import base64
import io
import json
import logging
import sys
from urllib.parse import quote

import pytest
import structlog
from gateway_world import chat_body
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from saltwall_platform.logs import configure_logging
from saltwall_platform.redaction import redact, redact_bytes
from saltwall_tenants import salts
from saltwall_tenants.wire import Refusal, derive_kv_salt

CANARY = "canary-Ünïcode-4711"


class Collector:
    """An OTLP/HTTP collector that keeps what it gets."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = int(head.lower().split("content-length:")[1].split("\r\n")[0])
        self.bodies.append(await reader.readexactly(size))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    def spans(self):
        """Every span that came."""
        for body in self.bodies:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    yield from scope.spans


@pytest.fixture
def logged(monkeypatch):
    """Logging as the gateway sets it up; what it wrote, as JSON objects."""
    written, root = io.StringIO(), logging.getLogger()
    monkeypatch.setattr(sys, "stderr", written)
    level = root.level
    configure_logging(level="debug", as_json=True)
    ours = root.handlers[0]
    yield lambda: [json.loads(line) for line in written.getvalue().splitlines()]
    root.removeHandler(ours)
    root.setLevel(level)
    structlog.reset_defaults()


async def secrets_of(world) -> set[str]:
    """Everything that must not be seen anywhere, in every form it could be written in."""
    async with world.database.snapshot() as tx:
        secret = await salts.current_secret(tx, world.keyring, world.acme.id)
    keys = world.engine.keys
    raw = [
        secret.secret,
        derive_kv_salt(secret.secret, "demo", ""),
        derive_kv_salt(secret.secret, "demo", CANARY),
        world.keyring.ticket_root.secret,
        *world.keyring.keks.values(),
        *world.keyring.peppers.values(),
        *keys.tickets.values(),
        *keys.seals.values(),
    ]
    texts = {CANARY, quote(CANARY), json.dumps(CANARY)[1:-1], keys.control}
    texts |= {world.acme_key.plaintext, world.acme_key.plaintext.split("_")[3]}
    for received in world.engine.received:
        texts |= {received.body["cache_salt"], dict(received.headers)["x-saltwall-seal"]}
    for data in raw:
        texts |= {data.hex(), base64.b64encode(data).decode().rstrip("=")}
        texts |= {base64.urlsafe_b64encode(data).decode().rstrip("="), repr(data)[2:-1]}
    return texts


async def misbehave(world) -> list[str]:
    """Good and bad requests full of canaries; the bodies of all refusals."""

    async def quote_everything(connection, request):
        text = request.raw.decode() + str(request.headers)
        await connection.json(500, {"error": {"message": text}})

    async def quote_in_4xx(connection, request):
        ticket = request.body["cache_salt"]
        await connection.json(400, {"error": {"message": f"input {ticket}"}})

    async def crash(connection, _request):
        connection.reset()

    good = world.engine.script
    fields = {"cache_salt": CANARY, "user": CANARY, "prompt": CANARY, CANARY: CANARY}
    answers = [
        await world.chat(**fields),
        await world.chat(**fields, n=99),
        await world.chat(**fields, stream=CANARY),
        await world.chat(f"sw_live_{quote(CANARY)}"),
        await world.chat(f"{world.acme_key.plaintext}x"),
        await world.client.get(f"/{CANARY}?{CANARY}={CANARY}"),
        await world.client.post("/v1/completions", content=f'{{"{CANARY}": oops'),
        await world.client.request(f"X{len(CANARY)}", "/v1/models", headers={"x-a": quote(CANARY)}),
    ]
    for script in (quote_everything, quote_in_4xx, crash):
        world.engine.script = script
        answers.append(await world.chat(**fields))
        answers.append(await world.chat(**fields, stream=True))
    world.engine.script = good
    world.engine.refuse = [Refusal.SEAL, Refusal.SEAL]
    answers.append(await world.chat(**fields))
    async with world.streaming(**fields) as response:
        await response.aread()
    return [answer.text + str(answer.headers) for answer in answers]


async def test_no_secret_and_no_prompt_is_ever_written_down(world, logged):
    collector = Collector()
    server = await asyncio.start_server(collector.serve, "127.0.0.1", 0)
    endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with world.running(otlp_endpoint=endpoint):
        answers = await misbehave(world)
        metrics = (await world.admin.get("/metrics")).text
        ready = (await world.admin.get("/readyz")).text
    server.close()
    lines = logged()
    spans = list(collector.spans())
    assert len([line for line in lines if line["event"] == "request"]) == 16
    assert len([span for span in spans if span.kind == span.SPAN_KIND_SERVER]) == 16
    seen = {
        "logs": json.dumps(lines, ensure_ascii=False),
        "spans": str(spans) + repr(collector.bodies),
        "metrics": metrics,
        "readiness": ready,
        "answers": "".join(answers),
        "database": repr((world.home / "saltwall.db").read_bytes())
        + "".join(repr(path.read_bytes()) for path in world.home.glob("saltwall.db-*")),
    }
    for secret in await secrets_of(world):
        for place, text in seen.items():
            assert secret not in text, f"{place}: {secret[:8]}..."


async def test_a_request_leaves_one_line_that_tells_its_story(world, logged):
    async with world.running():
        response = await world.chat(stream=False)
    line = next(line for line in logged() if line["event"] == "request")
    assert line.pop("duration_s") >= line.pop("first_byte_s") > 0
    assert line.pop("time")
    assert line == {
        "event": "request",
        "level": "info",
        "logger": "saltwall_platform.access",
        "request_id": response.headers["x-request-id"],
        "tenant": "acme",
        "key": world.acme_key.record.public_id,
        "route": "/v1/chat/completions",
        "model": "demo",
        "engine": "demo",
        "status": 200,
        "stream": False,
        "prompt_tokens": 7,
        "cached_tokens": 4,
        "completion_tokens": 3,
    }


async def test_a_trace_has_the_request_and_its_attempt_and_reaches_the_engine(world):
    collector = Collector()
    server = await asyncio.start_server(collector.serve, "127.0.0.1", 0)
    endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    theirs = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with world.running(otlp_endpoint=endpoint):
        headers = {**world.auth(), "traceparent": theirs}
        await world.client.post("/v1/chat/completions", json=chat_body(), headers=headers)
    server.close()
    spans = {span.name: span for span in collector.spans()}
    request, attempt = spans["POST /v1/chat/completions"], spans["engine"]
    assert attempt.parent_span_id == request.span_id
    assert request.parent_span_id == b""
    assert request.trace_id.hex() != theirs.split("-")[1]
    passed = dict(world.engine.received[0].headers)["traceparent"].split("-")
    assert passed[1:3] == [request.trace_id.hex(), attempt.span_id.hex()]
    attributes = {a.key: a.value.string_value or a.value.int_value for a in request.attributes}
    assert attributes["http.response.status_code"] == 200
    assert attributes["saltwall.tenant"] == "acme"
    assert attributes["saltwall.completion_tokens"] == 3


async def test_the_gateways_own_fault_is_logged_without_what_the_error_says(
    world, logged, monkeypatch
):
    async with world.running() as gateway:

        def fail(*_):
            raise RuntimeError(CANARY)

        monkeypatch.setattr(gateway.replicas.__class__, "choose", fail)
        response = await world.chat()
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal_error"
    line = next(line for line in logged() if line["event"] == "request failed")
    assert line["exception"] == "RuntimeError"
    assert any("generate.py" in frame for frame in line["frames"])
    assert line["request_id"] == response.headers["x-request-id"]
    assert CANARY not in json.dumps(line, ensure_ascii=False)


def test_libraries_lines_go_through_the_same_chain(logged):
    try:
        raise ValueError("sw_live_secret")
    except ValueError:
        logging.getLogger("some.library").exception("seen %s", "sw_live_abc_def")
    (line,) = logged()
    assert line["event"] == "seen [api key]"
    assert line["logger"] == "some.library"
    assert line["exception"] == "ValueError"
    assert "secret" not in json.dumps(line)


def test_chatty_libraries_are_quiet(logged):
    for name in ("httpx", "httpcore.http11", "uvicorn.access", "sqlalchemy.engine"):
        logging.getLogger(name).info("headers and all")
    assert logged() == []


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("a sw_live_abcdefghijkl_SECRET1 b", "a [api key] b"),
        ("sw1." + "Ab-_" * 28, "[ticket]"),
        ("sw1." + "Ab-_" * 5 + "...", "[ticket]..."),
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer [secret]"),
        ("bearer x", "Bearer [secret]"),
        ("nothing to see", "nothing to see"),
        ("sw1.short", "sw1.short"),
    ],
)
def test_whatever_looks_like_a_secret_is_struck_out(text, clean):
    assert redact(text) == clean
    assert redact_bytes(text.encode()) == clean.encode()


def test_bytes_that_are_no_text_pass_unchanged():
    assert redact_bytes(b"\xff\xfe ok") == b"\xff\xfe ok"
