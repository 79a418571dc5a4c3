"""A request's ticket is where the engine finds it without parsing, and the rest is unchanged."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltwall_tenants.wire import TICKET_CHARS, Refusal, WireError, embed_ticket, read_ticket

TICKET = "sw1." + "A" * (TICKET_CHARS - 4)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
fields = st.dictionaries(st.text() | st.just("cache_salt"), json_values, max_size=5)


@given(fields)
def test_ticket_is_found_and_fields_are_kept(request: dict[str, object]) -> None:
    """Whatever the client's fields, the ticket is read back and the other values are the same."""
    body = embed_ticket(request, TICKET)
    assert read_ticket(body) == TICKET
    assert json.loads(body) == request | {"cache_salt": TICKET}


@given(fields)
def test_ticket_is_there_once(request: dict[str, object]) -> None:
    """No duplicate key lets a second reader see another ticket than the first."""
    names = []
    json.loads(
        embed_ticket(request, TICKET),
        object_pairs_hook=lambda pairs: names.append([name for name, _ in pairs]),
    )
    assert names[-1].count("cache_salt") == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", ["\udfff"], {"\ud800": 1}])
def test_what_json_cannot_hold_is_an_error(value: object) -> None:
    """Infinities and lone surrogates are a ValueError, never odd bytes for the engine."""
    with pytest.raises(ValueError):  # noqa: PT011 - json's own and UnicodeEncodeError, both meant
        embed_ticket({"a": value}, TICKET)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"cache_salt":"',
        b'{"cache_salt":"sw1."}',
        b' {"cache_salt":"' + TICKET.encode() + b'"}',
        b'{"cache_salt": "' + TICKET.encode() + b'"}',
        b'{"cache_salt":"' + TICKET.encode() + b'A"}',
        b'{"cache_salt":"' + TICKET.encode(),
        b'{"model":"demo","cache_salt":"' + TICKET.encode() + b'"}',
        b'{"\\u0063ache_salt":"' + TICKET.encode() + b'"}',
    ],
)
def test_body_that_does_not_begin_with_a_ticket_is_refused(body: bytes) -> None:
    """Only the exact beginning that `embed_ticket` makes is read."""
    with pytest.raises(WireError) as error:
        read_ticket(body)
    assert error.value.refusal is Refusal.MALFORMED


@given(st.binary(max_size=200))
def test_arbitrary_body_is_refused(body: bytes) -> None:
    """Random bytes are a refusal and never another error."""
    with pytest.raises(WireError):
        read_ticket(body)


@given(st.binary(min_size=TICKET_CHARS, max_size=TICKET_CHARS))
def test_bytes_in_the_tickets_place_are_text(odd: bytes) -> None:
    """Whatever stands in the ticket's place is read as text, for `open_ticket` to refuse."""
    assert isinstance(read_ticket(b'{"cache_salt":"' + odd + b'"}'), str)
