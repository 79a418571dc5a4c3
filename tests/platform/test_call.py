"""What of a client's body reaches the engine, and what the gateway takes for itself."""

import json
from typing import Any

import pytest

from saltwall_platform.call import OWNED, Call, read_call
from saltwall_platform.errors import ApiError


def read(**fields: Any) -> Call:
    return read_call(
        json.dumps({"model": "demo", **fields}).encode(),
        max_sequences=64,
        max_constraint_bytes=16_384,
    )


def sent(call: Call) -> dict[str, Any]:
    body = call.encode(request_id="our-id", ticket="our-ticket", running_usage=True)
    return json.loads(body)


def refused(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(**fields)
    assert caught.value.status == 400
    return caught.value


def test_owned_fields_are_ours_whatever_the_client_sent():
    call = read(**dict.fromkeys(OWNED, "theirs"))
    body = sent(call)
    assert body["cache_salt"] == "our-ticket"
    assert body["request_id"] == "our-id"
    assert set(OWNED) & set(body) == {"cache_salt", "request_id"}


@pytest.mark.parametrize("name", OWNED)
def test_owned_fields_do_not_come_in_by_vllm_xargs(name):
    body = sent(read(vllm_xargs={name: "theirs", "mine": 1}))
    assert body["vllm_xargs"] == {"mine": 1}


def test_an_escaped_name_is_the_same_name():
    raw = b'{"model":"demo","cache\\u005fsalt":"x","prior\\u0069ty":1}'
    call = read_call(raw, max_sequences=64, max_constraint_bytes=16_384)
    assert call.scope == "x"
    assert "priority" not in sent(call)


def test_a_clients_ticket_is_but_a_scope():
    ticket = "sw1." + "A" * 114
    call = read(cache_salt=ticket)
    assert call.scope == ticket
    assert sent(call)["cache_salt"] == "our-ticket"


@pytest.mark.parametrize("scope", ["", "a", "x" * 256, "ü" * 128, "a/b@c\\d\x00"])
def test_a_clients_cache_salt_becomes_its_scope(scope):
    assert read(cache_salt=scope).scope == scope


def test_no_cache_salt_is_the_empty_scope():
    assert read().scope == read(cache_salt=None).scope == ""


@pytest.mark.parametrize("scope", ["x" * 257, "ü" * 129, 1, True, [], {}, ["a"], "\ud800"])
def test_any_other_cache_salt_is_refused(scope):
    assert refused(cache_salt=scope).param == "cache_salt"


@pytest.mark.parametrize("model", [None, "", 1, [], {"a": 1}])
def test_a_model_must_be_named(model):
    assert refused(model=model).param == "model"


def test_multimodal_uuids_are_removed():
    part = {"type": "image_url", "image_url": {"url": "data:,"}, "uuid": "shared"}
    odd = [{"content": "text"}, {"content": None}, {"role": "user"}, 1, {"content": [1, "x"]}]
    body = sent(read(messages=[{"role": "user", "content": [part]}, *odd]))
    assert "uuid" not in body["messages"][0]["content"][0]
    assert body["messages"][1:] == odd


def test_unknown_fields_keep_their_values():
    fields = {
        "temperature": 0.1,
        "prompt_cache_key": "conversation",
        "metadata": {"deep": [1, 1.0, None, "ü", {"cache_salt": "not ours in here"}]},
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"uuid": 1}}}],
        "user": "u",
    }
    body = sent(read(**fields))
    assert {name: body[name] for name in fields} == fields


def test_a_conversation_key_is_no_part_of_the_scope():
    assert read(prompt_cache_key="conversation").scope == ""


@pytest.mark.parametrize("value", ["true", 1, 0, "yes", [], {}])
def test_a_stream_flag_that_only_vllm_would_take_for_one_is_refused(value):
    assert refused(stream=value).param == "stream"
    refused(stream=True, stream_options={"include_usage": value})
    refused(stream=True, stream_options={"continuous_usage_stats": value})


@pytest.mark.parametrize("value", ["x", 1, [], True])
def test_stream_options_are_an_object(value):
    refused(stream=True, stream_options=value)


def test_a_null_flag_is_an_absent_one():
    call = read(stream=None, use_beam_search=None, n=None)
    assert not call.stream
    assert call.sequences == 1


def test_running_usage_needs_usage_as_in_vllm():
    assert not read(stream=True, stream_options={"continuous_usage_stats": True}).wants_usage
    both = {"include_usage": True, "continuous_usage_stats": True}
    assert read(stream=True, stream_options=both).wants_running_usage


def test_a_representation_shows_neither_prompt_nor_scope():
    shown = repr(read(messages="a secret prompt", cache_salt="a secret scope"))
    assert "secret" not in shown


def test_each_attempt_makes_its_own_body():
    call = read(prompt="x")
    first = json.loads(call.encode(request_id="a", ticket="t1", running_usage=True))
    second = json.loads(call.encode(request_id="b", ticket="t2", running_usage=True))
    assert (first["cache_salt"], second["cache_salt"]) == ("t1", "t2")
