"""A generation that runs while something happens to it."""

import asyncio
import time
from contextlib import AbstractAsyncContextManager, suppress

import httpx

from saltwall_security.answer_json import members


class Running:
    """A streamed completion, read in the background.

    `ids` are what the server calls the request, `named` those of them in the answer itself.
    `events` counts those with text. `finished`: the server said that it has come to its end.
    `ended_at` is on `time.monotonic()`'s clock.

    Args:
        opened: opens the answer; leaving it hangs up.
    """

    def __init__(self, opened: AbstractAsyncContextManager[httpx.Response]) -> None:
        self.status: int | None = None
        self.ids: set[str] = set()
        self.named: set[str] = set()
        self.events = 0
        self.finished = False
        self.ended_at: float | None = None
        self._hung_up = False
        self._began = asyncio.Event()
        self._task = asyncio.create_task(self._read(opened))

    @property
    def runs(self) -> bool:
        """Whether it has begun and not yet ended."""
        return self.events > 0 and self.ended_at is None

    @property
    def cut(self) -> bool:
        """Whether it was served, and ended by itself before its end; still running is no cut."""
        over = self.ended_at is not None and not self._hung_up
        return over and self.status == httpx.codes.OK and not self.finished

    @property
    def end(self) -> str:
        """How it ended, in words."""
        if self.finished:
            return "came to its end"
        return "was cut off" if self.cut else "did not come to its end"

    async def began(self, within_s: float) -> bool:
        """Waits for the first text; False if none came."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._began.wait(), within_s)
        return self.events > 0

    async def ended(self, within_s: float) -> bool:
        """Waits for its end, whichever; False if it still runs."""
        done, _ = await asyncio.wait({self._task}, timeout=within_s)
        return bool(done)

    async def stop(self) -> None:
        """Closes the connection, if that is still needed."""
        self._hung_up |= not self._task.done()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _read(self, opened: AbstractAsyncContextManager[httpx.Response]) -> None:
        try:
            async with opened as response:
                self.status = response.status_code
                self.ids |= {v for k, v in response.headers.items() if k == "x-request-id"}
                async for line in response.aiter_lines():
                    self._take(line)
        except httpx.HTTPError:
            pass  # cut off is one way to end: `cut` tells
        finally:
            self.ended_at = time.monotonic()
            self._began.set()

    def _take(self, line: str) -> None:
        if not line.startswith("data: {"):
            return
        event = members(line.removeprefix("data: ")) or {}
        if event.get("id"):
            self.named.add(str(event["id"]))
            self.ids |= self.named
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            self.events += 1
            reason = choice.get("finish_reason") if isinstance(choice, dict) else None
            self.finished |= reason in ("stop", "length")
            self._began.set()
