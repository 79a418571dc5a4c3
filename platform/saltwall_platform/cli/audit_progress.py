"""Shows how far an audit is: a line that changes on a terminal, lines elsewhere."""

import shutil
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

from saltwall_platform.cli.output import tell
from saltwall_security.report.redaction import Redaction

QUIET_S: Final = 10.0
BAR: Final = 20
PLAIN: Final = Redaction(())


class AuditProgress:
    """Writes to stderr, so that stdout holds only the result.

    Args:
        prefix: put before each line, where several targets are attacked in turn.
        clean: takes out what the target's words may hold.
    """

    def __init__(
        self,
        prefix: str = "",
        clean: Callable[[str], str] = PLAIN,
        stream: TextIO | None = None,
    ) -> None:
        self._prefix, self._clean, self._stream = prefix, clean, stream or sys.stderr
        self._live = self._stream.isatty()
        self._suite = ""
        self._shown = 0.0

    def __call__(self, done: float, left_s: float, text: str) -> None:
        """What a run says of itself: the part that is done, the time left, and what it does."""
        suite = text.partition(":")[0]
        text = self._clean(self._prefix + text)
        minutes, seconds = divmod(round(left_s), 60)
        if self._live:
            filled = round(done * BAR)
            bar = f"[{'=' * filled}{' ' * (BAR - filled)}]"
            line = f"{bar} {minutes}:{seconds:02} left  {text}"
            width = shutil.get_terminal_size().columns - 1
            tell(self._stream, f"\r\033[K{line[:width]}")
            return
        now = time.monotonic()
        if suite == self._suite and now - self._shown < QUIET_S:
            return
        self._suite, self._shown = suite, now
        tell(self._stream, f"{done:4.0%}, {minutes}:{seconds:02} left: {text}\n")

    def note(self, text: str) -> None:
        """Something that is not part of a run; its line stays."""
        self.clear()
        tell(self._stream, f"{self._clean(text)}\n")

    def clear(self) -> None:
        """Takes the changing line away."""
        if self._live:
            tell(self._stream, "\r\033[K")
