"""Raw requests get an answer, or none, in time."""

import asyncio

import pytest
from raw_server import OK, RawServer

from saltwall_security import raw_http
from saltwall_security.raw_http import Reply, Wire


async def reply(server: RawServer) -> Reply:
    """What comes back from it."""
    async with server.running():
        with Wire(server.url) as wire:
            return await asyncio.to_thread(wire.send, "GET", "/")


@pytest.mark.parametrize("begins", [OK + b"x: ", OK + b"\r\n"], ids=["headers", "body"])
async def test_an_answer_without_an_end_is_none(
    monkeypatch: pytest.MonkeyPatch, begins: bytes
) -> None:
    """However steadily it comes: a thread that reads it would never end."""
    monkeypatch.setattr(raw_http, "LONGEST_S", 0.1)
    assert (await reply(RawServer(begins, b"x", 0.02))).trouble == "no answer in time"


async def test_an_answer_is_read_to_its_end() -> None:
    """With and without a length."""
    for head in (b"content-length: 5\r\n\r\n", b"\r\n"):
        found = await reply(RawServer(OK + head + b"hello"))
        assert (found.status, found.body) == (200, b"hello")
