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

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.05
ORPHAN_GRACE_S = 2.0
IDLE_S = 60.0
STOPS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
WATCHED = STOPS | {signal.SIGCHLD}


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


def clear() -> None:
    """Kills every descendant, and waits until none is left."""
    while not reap():
        send(descendants(os.getpid()), signal.SIGKILL)
        time.sleep(POLL_S)  # what was killed takes a moment to be reaped


def prepare_command() -> None:
    """In the command's process: signals as usual, and its end should the guard be killed."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def watch(child: subprocess.Popen[bytes], grace_s: float, supervisor: int) -> int:
    """Waits for the command; told to stop, asks it to, and returns when it has or must be killed.

    A second signal does not wait for it.
    """
    deadline = float("inf")
    while (code := child.poll()) is None:
        left = min(deadline - time.monotonic(), IDLE_S)
        caught = signal.sigtimedwait(WATCHED, max(0.0, left))
        if caught is None and time.monotonic() >= deadline:
            return 0
        if caught is not None and caught.si_signo in STOPS:
            if deadline < float("inf"):
                return 0
            child.terminate()  # it ends its own processes
            orphaned = os.getppid() != supervisor
            deadline = time.monotonic() + (min(grace_s, ORPHAN_GRACE_S) if orphaned else grace_s)
    return code if deadline == float("inf") else 0


def main(arguments: list[str]) -> int:
    """Runs the command; returns its exit code as a shell would report it."""
    pidfile, grace_s, command = Path(arguments[0]), float(arguments[1]), arguments[2:]
    supervisor = os.getppid()
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)  # taken one by one, so that none is lost
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != supervisor:  # it died before the line above
        return 1
    try:
        child = subprocess.Popen(  # noqa: S603  # running what it is given is its purpose
            command, stdin=subprocess.DEVNULL, preexec_fn=prepare_command
        )
    except (OSError, subprocess.SubprocessError) as error:
        print(f"{command[0]} does not start: {error}", file=sys.stderr)
        return 127
    try:
        pidfile.write_text(f"{child.pid}\n")
        code = watch(child, grace_s, supervisor)
    finally:
        clear()  # what is left has lost its parent
        pidfile.unlink(missing_ok=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
