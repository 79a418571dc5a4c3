"""Runs one command so that nothing of it outlives whoever started the guard.

    python -I guard.py PIDFILE GRACE_SECONDS COMMAND...

vLLM starts processes of its own, which would survive if their parent, or the supervisor, were
killed. The guard is the subreaper (prctl(2)) of all of them, so orphans become its children. It
ends them when the command ends, when it is told to stop, and when its own parent dies. Standard
library only: it starts in milliseconds, and does not wait for anything to be imported.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.05
ORPHAN_GRACE_S = 2.0
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stop(Exception):
    """The guard was told to stop."""


def prctl(option: int, value: int) -> None:
    """Calls prctl(2)."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")


def processes() -> list[tuple[int, int, str]]:
    """Process id, parent and state of everything that runs, zombies included."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except (OSError, ValueError):
                continue
            found.append((int(entry.name), int(parent), state))
    return found


def descendants(pid: int) -> list[int]:
    """All living processes below `pid`, parents first."""
    children: dict[int, list[int]] = {}
    for child, parent, state in processes():
        if state not in "ZX":
            children.setdefault(parent, []).append(child)
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for parent in level for child in children.get(parent, [])]
        found += level
    return found


def send(pids: list[int], signum: signal.Signals) -> None:
    """Signals each process that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)


def reap() -> bool:
    """Collects what has ended; whether there are no children left, adopted orphans included.

    Not the same as no process being alive: one whose main thread has ended looks dead too early.
    """
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


class Grace:
    """How long what runs may still take to end by itself; a second signal ends it at once."""

    def __init__(self, seconds: float) -> None:
        self.deadline = time.monotonic() + seconds

    def cut(self, signum: int, frame: FrameType | None) -> None:
        """Signal handler: no more waiting."""
        self.deadline = 0

    @property
    def over(self) -> bool:
        """Whether what is left must be killed."""
        return time.monotonic() >= self.deadline


def clear(grace: Grace) -> None:
    """Waits until no descendant is left, and kills them once the grace is over."""
    while not reap():
        if grace.over:
            send(descendants(os.getpid()), signal.SIGKILL)
        time.sleep(POLL_S)


def die_with_guard() -> None:
    """In the command's process, before it starts: should the guard itself be killed."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """Runs the command; returns its exit code as a shell would report it."""
    pidfile, grace_s, command = Path(arguments[0]), float(arguments[1]), arguments[2:]
    supervisor = os.getppid()

    def stop(signum: int, frame: FrameType | None) -> None:
        raise Stop

    for signum in STOPS:
        signal.signal(signum, stop)
    try:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != supervisor:  # it died before the line above
            return 1
        child = subprocess.Popen(  # noqa: S603  # running what it is given is its purpose
            command, stdin=subprocess.DEVNULL, preexec_fn=die_with_guard
        )
        pidfile.write_text(f"{child.pid}\n")
        code = child.wait()
        grace = Grace(0)  # what is left has lost its parent
    except Stop:
        code = 0
        grace = Grace(grace_s if os.getppid() == supervisor else min(grace_s, ORPHAN_GRACE_S))
        send(descendants(os.getpid())[:1], signal.SIGTERM)  # the command ends its own processes
    except (OSError, subprocess.SubprocessError) as error:
        print(f"{command[0]} does not start: {error}", file=sys.stderr)
        code, grace = 127, Grace(0)
    for signum in STOPS:
        signal.signal(signum, grace.cut)
    clear(grace)
    pidfile.unlink(missing_ok=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
