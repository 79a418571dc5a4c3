"""Operators see health, readiness and bounded metrics, from this machine only."""

import re

from gateway_world import eventually
from raw_http import request, send

LABELS = re.compile(r"^(saltwall_\w+?)(?:_bucket|_created)?\{(.*)\} ", re.MULTILINE)


async def test_a_live_process_says_so(world):
    await world.engine.stop()
    async with world.running(routable=False):
        response = await world.admin.get("/healthz")
        assert (response.status_code, response.text) == (200, "ok\n")


async def test_readiness_needs_the_database_and_one_engine(world):
    async with world.running():
        response = await world.admin.get("/readyz")
        assert response.status_code == 200
        assert response.json() == {
            "ready": True,
            "reasons": [],
            "engines": [
                {
                    "engine": "demo",
                    "url": world.engine.url,
                    "routable": True,
                    "problem": "",
                    "quotas_problem": "",
                }
            ],
        }
        await world.engine.stop()

        async def unready() -> bool:
            return (await world.admin.get("/readyz")).status_code == 503

        await eventually(unready)
        document = (await world.admin.get("/readyz")).json()
        assert document["reasons"] == ["no engine is routable"]
        assert document["engines"][0]["problem"] == "it cannot be reached"


async def test_a_database_without_tables_is_named(world, tmp_path):
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    async with world.running(routable=False, database_url=url):

        async def named() -> bool:
            return "saltwall db upgrade" in (await world.admin.get("/readyz")).text

        await eventually(named)
        assert (await world.chat()).status_code == 503


async def test_nothing_else_is_served(up):
    for path in ("/", "/docs", "/openapi.json", "/redoc", "/v1/models", "/v1/chat/completions"):
        assert (await up.admin.get(path)).status_code == 404, path


async def test_a_page_in_a_browser_cannot_reach_it_by_a_name_of_its_own(up):
    for host, status in (
        ("evil.example", 421),
        ("evil.example:8081", 421),
        ("127.0.0.1.nip.io", 421),
        ("", 421),
        ("127.0.0.1", 200),
        ("127.0.0.1:8081", 200),
        ("localhost:8081", 200),
        ("[::1]:8081", 200),
        ("[::1]", 200),
    ):
        data = f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        assert (await send(up.gateway.admin_port, data)).status == status, host


async def test_labels_do_not_grow_with_what_clients_send(up):
    await up.chat()
    before = set(LABELS.findall((await up.admin.get("/metrics")).text))
    for number in range(20):
        headers = {**up.auth(), "Content-Type": "application/json"}
        method = f"M{number}"
        await send(up.gateway.port, request(method, f"/v1/{number}", headers))
        await up.chat(model=f"model-{number}", user=f"user-{number}", cache_salt=f"scope-{number}")
        await up.chat(f"key-{number}")
        await up.client.get(f"/v1/models/model-{number}")
    text = (await up.admin.get("/metrics")).text
    new = {labels for _, labels in set(LABELS.findall(text)) - before}
    assert not [
        labels
        for labels in new
        if re.search(r"\d{2}|model-|user-|scope-|key-", labels) and "le=" not in labels
    ]
    assert {re.sub(r'le="[^"]*",?', "", labels) for labels in new} <= {
        'route="other"',
        'route="other",status="4xx"',
        'route="/v1/chat/completions",status="4xx"',
        'route="/v1/models/{id}"',
        'route="/v1/models/{id}",status="4xx"',
    }


async def test_requests_are_counted_by_route_and_class(up):
    await up.chat()
    await up.chat("nobody")
    await up.client.get("/v1/models")
    for labels, count in (
        ('route="/v1/chat/completions",status="2xx"', 1),
        ('route="/v1/chat/completions",status="4xx"', 1),
        ('route="/v1/models",status="2xx"', 1),
    ):
        assert await up.metric(f"saltwall_requests_total{{{labels}}}") == count
    first_bytes = 'saltwall_first_byte_seconds_count{route="/v1/chat/completions"}'
    assert await up.metric(first_bytes) == 1
