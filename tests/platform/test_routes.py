"""Only four routes exist, by the exact bytes of their path, and models are shown to who may."""

import json

from raw_http import request, send

from saltwall_tenants import api_keys

BODY = json.dumps({"model": "demo", "messages": []}).encode()


ELSEWHERE = [
    "/",
    "/v1",
    "/v1/",
    "/v1/chat",
    "/v1/chat/completions/",
    "//v1/chat/completions",
    "/v1//chat/completions",
    "/v1/./chat/completions",
    "/v1/x/../chat/completions",
    "/v1/chat%2fcompletions",
    "/v1%2Fchat/completions",
    "/v1/chat/completion%73",
    "/v1/chat/completions%0a",
    "/v1/chat/completions%00",
    "/v1/chat/completions;x",
    "/V1/chat/completions",
    "http://evil.example/v1/chat/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/files",
    "/v2/chat/completions",
    "/saltwall/v1/policy",
    "/saltwall/v1/usage",
    "/metrics",
    "/health",
    "/healthz",
    "/docs",
    "/openapi.json",
    "/tokenize",
    "/v1/chat/completions/batch",
    "/v1/chat/completions/render",
]
WRONG_METHODS = [
    ("GET", "/v1/chat/completions", "POST"),
    ("GET", "/v1/completions", "POST"),
    ("PUT", "/v1/completions", "POST"),
    ("OPTIONS", "/v1/chat/completions", "POST"),
    ("TRACE", "/v1/chat/completions", "POST"),
    ("post", "/v1/chat/completions", "POST"),
    ("POST", "/v1/models", "GET"),
    ("DELETE", "/v1/models/demo", "GET"),
]


async def test_nothing_else_exists(up):
    headers = {**up.auth(), "Content-Type": "application/json"}
    for target in ELSEWHERE:
        answer = await send(up.gateway.port, request("POST", target, headers, BODY))
        assert answer.status == 404, target
        error = json.loads(answer.body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["code"] == "not_found"
    assert not up.engine.received


async def test_a_route_has_one_method(up):
    for method, target, allowed in WRONG_METHODS:
        answer = await send(up.gateway.port, request(method, target, up.auth()))
        assert answer.status == 405, (method, target)
        assert dict(answer.headers)["allow"] == allowed
    assert (await up.client.head("/v1/completions")).status_code == 405


async def test_a_query_string_changes_nothing_and_goes_nowhere(up):
    headers = {**up.auth(), "Content-Type": "application/json"}
    target = "/v1/chat/completions?model=other&cache_salt=x"
    answer = await send(up.gateway.port, request("POST", target, headers, BODY))
    assert answer.status == 200
    assert up.engine.received[0].path == "/v1/chat/completions"


async def test_the_host_header_decides_nothing(up):
    for host in ("evil.example", "127.0.0.1:1", ""):
        response = await up.client.get("/v1/models", headers={"host": host})
        assert response.status_code == 200
        assert host not in response.text or not host


async def test_an_upgrade_to_websocket_is_not_made(up):
    headers = {
        **up.auth(),
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    answer = await send(up.gateway.port, request("GET", "/v1/realtime", headers))
    assert answer.status == 404


async def test_a_key_sees_the_models_it_may_use_and_no_others(world):
    engines = [
        {"name": "big", "url": world.engine.url, "models": ["big", "org/adapter"]},
        {"name": "small", "url": "http://127.0.0.1:9"},
    ]
    narrow = await world.change(
        lambda tx: api_keys.create(
            tx, world.keyring, "acme", models=["org/adapter", "gone"], actor="test"
        )
    )
    async with world.running(routable=False, engines=engines):
        listed = (await world.client.get("/v1/models")).json()
        assert listed["object"] == "list"
        assert [m["id"] for m in listed["data"]] == ["big", "org/adapter", "small"]
        assert set(listed["data"][0]) == {"id", "object", "created", "owned_by"}
        auth = world.auth(narrow)
        listed = (await world.client.get("/v1/models", headers=auth)).json()
        assert [m["id"] for m in listed["data"]] == ["org/adapter"]
        for target in ("/v1/models/org/adapter", "/v1/models/org%2Fadapter"):
            assert (await world.client.get(target, headers=auth)).json()["id"] == "org/adapter"


async def test_an_unknown_model_and_one_that_is_not_allowed_get_the_same_answer(world):
    engines = [{"name": "demo", "url": world.engine.url, "models": ["demo", "secret"]}]
    narrow = await world.change(
        lambda tx: api_keys.create(tx, world.keyring, "acme", models=["demo"], actor="test")
    )
    async with world.running(engines=engines):
        auth = world.auth(narrow)
        for method, kind in (("GET", "show"), ("POST", "use")):
            answers = []
            for model in ("secret", "absent"):
                if kind == "show":
                    response = await world.client.get(f"/v1/models/{model}", headers=auth)
                else:
                    response = await world.chat(narrow, model=model)
                assert response.status_code == 404, method
                assert response.json()["error"]["code"] == "model_not_found"
                answers.append(response.text.replace(model, "MODEL"))
            assert answers[0] == answers[1]
        assert not world.engine.received


async def test_listing_models_needs_a_key(up):
    response = await up.client.get("/v1/models", headers=up.auth("sw_live_nonsense"))
    assert response.status_code == 401
