"""Shows what `saltwall up` is doing: one line that changes on a terminal, lines elsewhere."""

import sys
import time
from typing import TextIO

QUIET_S = 10.0


class Progress:
    """Writes to stderr, so that stdout holds only what was asked for."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._text = ""
        self._shown = 0.0

    def done(self, text: str) -> None:
        """A step is over; its line stays."""
        self._clear()
        print(text, file=self._stream, flush=True)
        self._text = ""

    def now(self, text: str, since: float) -> None:
        """A step goes on; `since` is when it began (monotonic seconds)."""
        now = time.monotonic()
        line = f"{text} ({now - since:.0f} s)"
        if self._live:
            self._clear()
            print(line, end="", file=self._stream, flush=True)
        elif text != self._text or now - self._shown >= QUIET_S:
            print(line, file=self._stream, flush=True)
            self._shown = now
        self._text = text

    def _clear(self) -> None:
        if self._live:
            print("\r\033[K", end="", file=self._stream)
