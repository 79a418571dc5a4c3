"""A body is read in one way only, or refused."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltwall_platform.errors import ApiError
from saltwall_platform.json_body import parse_object, serialise

DEEP = 50_000
TICKET = "sw1." + "A" * 114


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"[]",
        b'"text"',
        b"null",
        b"1",
        b"{",
        b'{"a":1} x',
        b'{"a":1}{"b":2}',
        b"{'a':1}",
        b'{"a":1,}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":1,"a":2}',
        b'{"b":{"a":1,"\\u0061":2}}',
        b'\xef\xbb\xbf{"a":1}',
        '{"a":1}'.encode("utf-16"),
        b'{"a":"\xff"}',
        b'{"a":"\x00"}',
        b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}",
        b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    ],
)
def test_what_two_parsers_could_read_differently_is_refused(body):
    with pytest.raises(ApiError) as caught:
        parse_object(body)
    assert caught.value.status == 400


@pytest.mark.parametrize("text", ["\\ud800", "\\udfff", "\\udfff\\ud800"])
def test_half_a_surrogate_pair_is_refused(text):
    document = parse_object(f'{{"a":"{text}"}}'.encode())
    with pytest.raises(ApiError) as caught:
        serialise(document, TICKET)
    assert caught.value.status == 400


def test_a_whole_surrogate_pair_is_one_character():
    document = parse_object(b'{"a":"\\ud83d\\ude00"}')
    assert serialise(document, TICKET).endswith('"a":"😀"}'.encode())


def test_an_error_does_not_quote_the_body():
    with pytest.raises(ApiError) as caught:
        parse_object(b'{"secret words": oops}')
    assert b"secret" not in caught.value.body()


def test_numbers_keep_their_kind_and_value():
    body = b'{"a":1,"b":1.0,"c":0.1,"d":-0.0,"e":9223372036854775807,"f":1e-7}'
    again = parse_object(serialise(parse_object(body), TICKET))
    assert again.pop("cache_salt") == TICKET
    assert again == json.loads(body)
    assert [type(value) for value in again.values()] == [int, float, float, float, int, float]
    assert math.copysign(1, again["d"]) == -1


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
def test_a_whole_number_over_64_bits_is_refused(number):
    with pytest.raises(ApiError) as caught:
        parse_object(f'{{"top_k": {number}}}'.encode())
    assert caught.value.status == 400


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)
TEXT = st.text(max_size=8)
JSON = st.recursive(
    SCALARS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(TEXT, JSON, max_size=5))
def test_every_value_survives(document):
    again = parse_object(serialise(parse_object(json.dumps(document).encode()), TICKET))
    assert again == {**document, "cache_salt": TICKET}


@given(st.binary())
def test_any_bytes_are_an_object_or_a_clean_refusal(body):
    try:
        document = parse_object(body)
    except ApiError as refusal:
        document = {"refused": refusal.status}
    assert document.get("refused", 400) == 400
