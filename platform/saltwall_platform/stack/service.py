"""One long-running process of the stack, started under the guard and restarted when it ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from saltwall_platform.stack import guard

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
STEADY_S: Final = 60.0
"""A process that ran this long has not crashed because of how it was started."""


def pause_s(crashes: int) -> float:
    """How long to wait before start number `crashes` + 1 (seconds, doubling)."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(crashes - 1, 16))


class Service:
    """A command that should run all the time; only the supervisor's main thread touches it.

    Args:
        name: what users know it by; names its log and pid files.
        argv, environ: the command and its whole environment.
        home: the data directory; `logs/` and `run/` are in it.
        grace_s: how long it may take to end when asked to (seconds).
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        environ: Mapping[str, str],
        home: Path,
        grace_s: float,
    ) -> None:
        self.name = name
        self.log = home / "logs" / f"{name}.log"
        self.crashes = 0
        self._pidfile = home / "run" / f"{name}.pid"
        # -I: the guard needs nothing but the standard library, and no file of the user's.
        prefix = (sys.executable, "-I", guard.__file__, str(self._pidfile), str(grace_s))
        self._argv, self._environ = (*prefix, *argv), dict(environ)
        self._process: subprocess.Popen[bytes] | None = None
        self._started = self._restart_at = 0.0

    @property
    def pid(self) -> int | None:
        """The process id of the command itself; None while it does not run."""
        try:
            return int(self._pidfile.read_text())
        except (OSError, ValueError):
            return None

    @property
    def guard_pid(self) -> int | None:
        """The process id of its guard; None while that does not run."""
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        """Whether the command, or something that it started, still runs."""
        return self._process is not None and self._process.poll() is None

    def rotate_log(self) -> None:
        """Keeps the log of the run before as `NAME.log.1`; called before the first start."""
        self.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.log.exists():
            self.log.replace(self.log.with_name(f"{self.log.name}.1"))

    def start(self) -> None:
        """Starts the command in a session of its own: the terminal's signals are not for it."""
        self._pidfile.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  # the supervisor's own commands
                self._argv,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started = time.monotonic()

    def ended(self) -> int | None:
        """The exit code if the command has ended since it was last asked; else None."""
        if self._process is None or self._process.poll() is None:
            return None
        code, self._process = self._process.returncode, None
        now = time.monotonic()
        self.crashes = 1 if now - self._started > STEADY_S else self.crashes + 1
        self._restart_at = now + pause_s(self.crashes)
        return code

    @property
    def due(self) -> bool:
        """Whether it is time to start it again."""
        return self._process is None and time.monotonic() >= self._restart_at

    def stop(self) -> None:
        """Asks it to end; asked again, it is killed at once."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def log_text(self) -> str:
        """The log of this run; empty if there is none."""
        try:
            return self.log.read_text(errors="replace")
        except OSError:
            return ""
