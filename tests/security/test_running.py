"""How a generation ended: by itself, cut off by somebody, or because we hung up."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import httpx
import pytest

from saltwall_security.running import Running

TOKEN = b'data: {"id": "x", "choices": [{"text": "a", "finish_reason": null}]}\n\n'
LAST = b'data: {"id": "x", "choices": [{"text": "a", "finish_reason": "length"}]}\n\n'


@asynccontextmanager
async def answer(
    events: Sequence[bytes], status: int = 200, *, goes_on: bool = False
) -> AsyncIterator[httpx.Response]:
    """A streamed answer of these events, which may never end."""

    async def content() -> AsyncIterator[bytes]:
        for event in events:
            yield event
        if goes_on:
            await asyncio.Event().wait()

    yield httpx.Response(status, content=content())


@pytest.mark.parametrize(
    ("running", "cut"),
    [
        (lambda: Running(answer([TOKEN, LAST])), False),
        (lambda: Running(answer([TOKEN])), True),
        (lambda: Running(answer([TOKEN], goes_on=True)), False),
        (lambda: Running(answer([], 503)), False),
    ],
    ids=["its end", "cut off", "still running", "refused"],
)
async def test_only_what_ended_early_by_itself_was_cut(
    running: Callable[[], Running], cut: bool
) -> None:
    """What was still running when we hung up was not, however often we hang up."""
    one = running()
    await one.ended(0.05)
    await one.stop()
    await one.stop()
    assert one.cut is cut
    assert (one.end == "was cut off") is cut
