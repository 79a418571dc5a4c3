"""Nothing that runs under the guard outlives the command, the guard or the supervisor."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from saltwall_platform.stack import guard

DEADLINE_S = 15.0

# A command with a child that ignores SIGTERM, and an orphan in a session of its own.
TREE = """
import os, signal, subprocess, sys, time
stubborn = (
    "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)"
)
child = subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE)
child.stdout.readline()
orphan = subprocess.run(
    [sys.executable, "-c", "import subprocess; print(subprocess.Popen(['sleep', '600'], "
     "start_new_session=True, stdout=subprocess.DEVNULL).pid)"], stdout=subprocess.PIPE, text=True)
with open(sys.argv[1] + ".new", "w") as file:
    file.write(f"{os.getpid()} {child.pid} {orphan.stdout}")
if len(sys.argv) > 2:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def eventually(holds: Callable[[], bool]) -> None:
    """Polls until it holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def command(tmp_path: Path, grace_s: float, *stubborn: str) -> list[str]:
    """The guard with that tree of processes below it; `stubborn`: the command ignores SIGTERM."""
    prefix = [sys.executable, "-I", guard.__file__, str(tmp_path / "pid"), str(grace_s)]
    return [*prefix, sys.executable, "-c", TREE, str(tmp_path / "tree"), *stubborn]


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Callable[[], list[int]]]:
    """Waits for the tree, and ends it should a test fail."""
    pids: list[int] = []

    def wait() -> list[int]:
        eventually((tmp_path / "tree").exists)
        pids.extend(map(int, (tmp_path / "tree").read_text().split()))
        assert all(map(alive, pids))
        return pids

    yield wait
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_stopped_guard_leaves_nothing(tmp_path: Path, tree: Callable[[], list[int]]) -> None:
    """Also what ignores SIGTERM, and what left its session: it has lost its parent."""
    process = subprocess.Popen(command(tmp_path, 600), start_new_session=True)
    pids = tree()
    assert int((tmp_path / "pid").read_text()) == pids[0]
    process.terminate()
    assert process.wait(DEADLINE_S) == 0
    assert not any(map(alive, pids))
    assert not (tmp_path / "pid").exists()


def test_a_stubborn_command_is_killed_after_the_grace(
    tmp_path: Path, tree: Callable[[], list[int]]
) -> None:
    """It had its time."""
    process = subprocess.Popen(command(tmp_path, 0.2, "stubborn"), start_new_session=True)
    pids = tree()
    process.terminate()
    assert process.wait(DEADLINE_S) == 0
    assert not any(map(alive, pids))


def test_a_second_signal_ends_the_grace(tmp_path: Path, tree: Callable[[], list[int]]) -> None:
    """Whoever presses Ctrl-C twice does not wait."""
    process = subprocess.Popen(command(tmp_path, 600, "stubborn"), start_new_session=True)
    pids = tree()
    process.terminate()
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE_S) == 0
    assert not any(map(alive, pids))


def test_a_killed_command_takes_its_children_along(
    tmp_path: Path, tree: Callable[[], list[int]]
) -> None:
    """At once: what is left has lost its parent. The exit code is a shell's."""
    process = subprocess.Popen(command(tmp_path, 600), start_new_session=True)
    pids = tree()
    os.kill(pids[0], signal.SIGKILL)
    assert process.wait(DEADLINE_S) == 128 + signal.SIGKILL
    assert not any(map(alive, pids))


def test_a_killed_supervisor_takes_everything_along(
    tmp_path: Path, tree: Callable[[], list[int]]
) -> None:
    """kill -9 gives nobody a chance to clean up; the guard notices by itself."""
    script = "import subprocess, sys, time; subprocess.Popen(sys.argv[1:], start_new_session=True)"
    supervisor = subprocess.Popen(
        [sys.executable, "-c", f"{script}; time.sleep(600)", *command(tmp_path, 600, "stubborn")]
    )
    pids = tree()
    supervisor.kill()
    supervisor.wait()
    eventually(lambda: not any(map(alive, pids)))


def test_a_command_that_does_not_start_is_said(tmp_path: Path) -> None:
    """As a shell does, with code 127."""
    prefix = [sys.executable, "-I", guard.__file__, str(tmp_path / "pid"), "1"]
    run = subprocess.run(
        [*prefix, str(tmp_path / "no-such-program")], capture_output=True, text=True
    )
    assert run.returncode == 127
    assert "no-such-program" in run.stderr
