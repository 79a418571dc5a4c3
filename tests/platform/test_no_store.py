"""Cache-Control: no-store reaches the engine as a sampling argument, and by that way alone."""

import json
from typing import Any

import pytest
from gateway_world import chat_body
from starlette.datastructures import Headers

from saltwall_platform.call import read_call
from saltwall_platform.errors import ApiError
from saltwall_platform.no_store import ARGUMENT, wants_no_store


def sent(no_store: bool = True, **fields: Any) -> dict[str, Any]:
    """The body that the engine would get."""
    body = json.dumps({"model": "demo", **fields}).encode()
    call = read_call(body, max_sequences=64, max_constraint_bytes=16_384, no_store=no_store)
    return json.loads(call.encode(request_id="r", ticket="t", running_usage=False))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], False),
        (["no-cache"], False),
        (["max-age=0, no-storage"], False),
        (["no-store"], True),
        (["No-Store"], True),
        (["no-cache, no-store ,max-age=0"], True),
        (["no-cache", "no-store"], True),
    ],
)
def test_the_directive_is_found_as_http_writes_it(values: list[str], expected: bool) -> None:
    """In any case, among others, in any of several headers; and nothing else is taken for it."""
    headers = Headers(raw=[(b"cache-control", value.encode()) for value in values])
    assert wants_no_store(headers) is expected


@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/completions"])
async def test_the_header_becomes_an_argument_of_the_engines(up, route):
    """With it the argument is there beside the client's own; without it, it is not."""
    body = {**chat_body(), "prompt": "Hi", "vllm_xargs": {"mine": 1}}
    for headers in ({"cache-control": "no-store"}, {}):
        response = await up.client.post(route, json=body, headers={**up.auth(), **headers})
        assert response.status_code == 200
    with_it, without = (request.body["vllm_xargs"] for request in up.engine.received)
    assert with_it == {"mine": 1, ARGUMENT: 1}
    assert without == {"mine": 1}


@pytest.mark.parametrize("own", [{}, {"vllm_xargs": None}, {"vllm_xargs": {}}])
def test_arguments_are_made_where_there_are_none(own: dict[str, Any]) -> None:
    """The client need not send any."""
    assert sent(**own)["vllm_xargs"] == {ARGUMENT: 1}
    assert not sent(no_store=False, **own).get("vllm_xargs")


@pytest.mark.parametrize("name", [ARGUMENT, "saltwall_", "saltwall_reserve", "SALTWALL_no_store"])
@pytest.mark.parametrize("value", [0, 1, None, "x"])
@pytest.mark.parametrize("no_store", [False, True])
def test_a_clients_own_argument_of_our_name_is_refused(
    name: str, value: object, no_store: bool
) -> None:
    """Neither taken nor dropped in silence: it is told of the header."""
    with pytest.raises(ApiError, match="Cache-Control: no-store") as refused:
        sent(no_store, vllm_xargs={name: value})
    assert (refused.value.status, refused.value.param) == (400, "vllm_xargs")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"use_beam_search": True}, "use_beam_search"),
        ({"vllm_xargs": [1]}, "vllm_xargs"),
        ({"vllm_xargs": "x"}, "vllm_xargs"),
    ],
)
def test_what_cannot_be_kept_is_refused(fields: dict[str, Any], param: str) -> None:
    """Rather than cached against the client's word."""
    with pytest.raises(ApiError) as refused:
        sent(**fields)
    assert (refused.value.status, refused.value.param) == (400, param)
    sent(no_store=False, **fields)


async def test_a_refusal_reaches_the_client(up):
    """400, before any engine has seen the request."""
    response = await up.chat(vllm_xargs={ARGUMENT: 0})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "vllm_xargs"
    assert not up.engine.received
