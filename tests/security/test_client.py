"""A client takes any answer: one without an end, one that is too long, one that says nonsense."""

import json

import httpx
import pytest
from raw_server import OK, RawServer

from saltwall_security import bounded_http, client
from saltwall_security.client import Answer, Client
from saltwall_security.target import Target, Tenant

EVENT = b'data: {"choices": [{"text": "x"}]}\n\n'


async def answer(server: RawServer, **fields: object) -> Answer:
    """What a client makes of it."""
    async with server.running():
        asking = Client(Target(server.url, (), model="words"), Tenant("a", "key"))
        try:
            return await asking.complete("one two", **fields)
        finally:
            await asking.close()


@pytest.mark.parametrize(
    ("begins", "drips", "stream"),
    [(OK, b"x", False), (OK + b"\r\n", b" ", False), (OK + b"\r\n", EVENT, True)],
    ids=["headers", "body", "events"],
)
async def test_an_answer_without_an_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch, begins: bytes, drips: bytes, stream: bool
) -> None:
    """However steadily it comes."""
    monkeypatch.setattr(client, "TIMEOUT_S", 0.1)
    with pytest.raises(httpx.ReadTimeout):
        await answer(RawServer(begins, drips, 0.02), stream=stream)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_is_too_long_is_given_up(
    monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """Also one that is a single line."""
    monkeypatch.setattr(bounded_http, "MOST_BYTES", 2**16)
    with pytest.raises(httpx.ReadError):
        await answer(RawServer(OK + b"\r\n", b" " * 2**12), stream=stream)


async def test_a_packed_answer_is_refused() -> None:
    """Nobody asked for it, and nobody knows how long it is."""
    server = RawServer(OK + b"content-encoding: gzip\r\n\r\n", None)
    with pytest.raises(httpx.DecodingError):
        await answer(server)
    assert b"accept-encoding: identity" in server.heads[0].lower()


@pytest.mark.parametrize(
    "document",
    [
        {"choices": {"a": 1}, "usage": {"prompt_tokens": "many"}},
        {"choices": ["x"], "usage": {"prompt_tokens": float("inf")}},
        {"choices": [], "usage": {"prompt_tokens": 10**400}},
        {"choices": [{"message": "x"}], "usage": {"prompt_tokens_details": {"cached_tokens": "a"}}},
        {"usage": {"input_tokens": 3, "cache_read_input_tokens": [1]}},
        "[" * 10**5,
    ],
)
async def test_an_answer_of_other_types_says_nothing(document: object) -> None:
    """It is no error."""
    body = document if isinstance(document, str) else json.dumps(document)
    found = await answer(RawServer(OK + b"\r\n" + body.encode()))
    assert (found.text, found.cached_tokens, found.prompt_tokens) == ("", None, None)
    assert not found.error


async def test_an_event_that_is_no_json_breaks_the_answer_off() -> None:
    """As a broken connection does."""
    with pytest.raises(httpx.DecodingError):
        await answer(RawServer(OK + b"\r\ndata: {oops\n\n"), stream=True)


async def test_headers_need_not_be_ascii() -> None:
    """They may hold a tenant's name."""
    server = RawServer(OK + b"\r\n{}")
    async with server.running():
        asking = Client(Target(server.url, (), model="words"), Tenant("a"))
        await asking.ask("/completions", {}, {"x-tenant": "Zoë"})
        await asking.close()
    assert "x-tenant: Zoë".encode() in server.heads[0]
