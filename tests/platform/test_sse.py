"""Events are found whole, wherever the network cuts them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltwall_platform import sse
from saltwall_platform.sse import EventSplitter, EventTooLarge, data_span

EVENTS = [
    b"data: a\n\n",
    b": comment\n\n",
    "data: ü\r\n\r\n".encode(),
    b"data: b\r\r",
    b"id: 1\n\n",
]


@given(st.lists(st.sampled_from(EVENTS)), st.lists(st.integers(1, 60), max_size=40))
def test_any_cutting_gives_the_same_events(events, sizes):
    stream = b"".join(events)
    splitter, found = EventSplitter(), []
    while stream:
        size = sizes.pop() if sizes else len(stream)
        found += splitter.feed(stream[:size])
        stream = stream[size:]
    assert b"".join(found) + splitter.rest() == b"".join(events)
    assert splitter.rest().strip(b"\r\n") == b""
    assert [e.strip(b"\r\n") for e in found if e.strip(b"\r\n")] == [e.strip() for e in events]


@given(st.binary(max_size=300), st.integers(1, 20))
def test_no_byte_is_ever_lost_or_moved(stream, size):
    splitter = EventSplitter()
    chunks = [stream[i : i + size] for i in range(0, len(stream), size)]
    found = b"".join(event for chunk in chunks for event in splitter.feed(chunk))
    assert found + splitter.rest() == stream


def test_an_incomplete_event_waits():
    splitter = EventSplitter()
    assert splitter.feed(b"data: a\n") == []
    assert splitter.feed(b"\ndata: b") == [b"data: a\n\n"]
    assert splitter.rest() == b"data: b"


def test_an_event_without_an_end_is_not_collected_for_ever(monkeypatch):
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    splitter = EventSplitter()
    assert splitter.feed(b"x" * 1000) == []
    with pytest.raises(EventTooLarge):
        splitter.feed(b"x")


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: x\n\n", b"x"),
        (b"data:x\n\n", b"x"),
        (b"data:  x\r\n\r\n", b" x"),
        (b"\ndata: x\n\n", b"x"),
        (b"event: e\ndata: x\nid: 1\n\n", b"x"),
        (b"data: \n\n", b""),
        (b": data: x\n\n", None),
        (b"data: a\ndata: b\n\n", None),
        (b"\n\n", None),
    ],
)
def test_the_data_of_an_event_is_found(event, data):
    span = data_span(event)
    assert (None if span is None else event[slice(*span)]) == data
