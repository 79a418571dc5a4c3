"""Engine and gateway are started together, restarted when they crash, and stopped in order."""

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from saltwall_platform.stack import engine_log
from saltwall_platform.stack.errors import StackError
from saltwall_platform.stack.progress import Progress
from saltwall_platform.stack.readiness import Readiness
from saltwall_platform.stack.service import LONGEST_PAUSE_S, Service, pause_s
from saltwall_platform.stack.supervisor import Stopped, Supervisor, stop_on_signals

DEADLINE_S = 15.0
STAY = "import time; time.sleep(600)"
# Answers like the gateway's readiness once the file is there.
ADMIN = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if os.path.exists(sys.argv[2]) else 503)
        self.end_headers()
    def log_message(self, *arguments): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(server.server_port))
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
"""


def eventually(holds: Callable[[], object]) -> None:
    """Polls until it holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def service(home: Path, name: str, script: str, *arguments: str) -> Service:
    """A service that runs a Python script."""
    argv = (sys.executable, "-c", script, *arguments)
    return Service(name, argv, os.environ, home, 5.0)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Makes services, and ends them after the test."""
    made: list[Service] = []

    def make(name: str, script: str, *arguments: str) -> Service:
        made.append(service(tmp_path, name, script, *arguments))
        return made[-1]

    yield make
    for each in made:
        each.stop()
        each.stop()
        eventually(lambda each=each: not each.running)


def test_it_starts_both_and_waits_until_the_gateway_is_ready(
    tmp_path: Path, started: Callable[..., Service]
) -> None:
    """`start` returns once requests can be served, and not before."""
    port, ready = tmp_path / "port", tmp_path / "ready"
    gateway = started("gateway", ADMIN, str(port), str(ready))
    gateway.rotate_log()
    gateway.start()
    eventually(port.exists)
    engine = started("engine", f"open({str(ready)!r}, 'w'); {STAY}")
    readiness = Readiness(f"http://127.0.0.1:{port.read_text()}", engine, gateway)
    assert readiness.missing() == "engine: starting again"
    engine.rotate_log()
    engine.start()
    eventually(lambda: not readiness.missing())
    readiness.close()
    assert engine.running
    assert gateway.running


def test_a_start_that_fails_says_why(tmp_path: Path, started: Callable[..., Service]) -> None:
    """The reason from the log, and where the log is."""
    failing = "raise SystemExit('usage\\napi_server.py: error: unrecognized arguments: --x')"
    engine, gateway = started("engine", failing), started("gateway", STAY)
    readiness = Readiness("http://127.0.0.1:9", engine, gateway)
    supervisor = Supervisor(engine, gateway, Progress(io.StringIO()))
    with pytest.raises(StackError, match="unrecognized arguments: --x") as caught:
        supervisor.start(readiness)
    readiness.close()
    assert str(engine.log) in str(caught.value)
    supervisor.stop()
    assert not gateway.running


def test_what_is_killed_is_started_again_until_a_signal(
    tmp_path: Path, started: Callable[..., Service]
) -> None:
    """kill -9 of the command itself; then SIGTERM to the supervisor ends the loop."""
    count = tmp_path / "count"
    engine = started("engine", f"print('start', file=open({str(count)!r}, 'a')); {STAY}")
    gateway = started("gateway", STAY)
    for each in (engine, gateway):
        each.rotate_log()
        each.start()
    eventually(lambda: engine.pid and count.exists())
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)
    # The test's process is the supervisor: it is told to stop once the second start has happened.
    watcher = subprocess.Popen(
        ["sh", "-c", f"until [ $(wc -l < {count}) = 2 ]; do sleep 0.05; done; kill {os.getpid()}"]
    )
    shown = io.StringIO()
    supervisor = Supervisor(engine, gateway, Progress(shown))
    with pytest.raises(Stopped), stop_on_signals():
        supervisor.keep()
    supervisor.stop()
    assert watcher.wait() == 0
    assert "engine ended (code 137)" in shown.getvalue()
    assert not engine.running
    assert not gateway.running


SUPERVISOR = """
import io, os, sys
from pathlib import Path
from saltwall_platform.stack.progress import Progress
from saltwall_platform.stack.service import Service
from saltwall_platform.stack.supervisor import Stopped, Supervisor, stop_on_signals
home = Path(sys.argv[1])
tree = "import subprocess, time; print(subprocess.Popen(['sleep', '600'], start_new_session=True)"
wait = "import time; time.sleep(600)"
scripts = {"engine": f"{tree}.pid, flush=True); {wait}", "gateway": wait}
engine, gateway = (
    Service(name, (sys.executable, "-c", script), os.environ, home, 5.0)
    for name, script in scripts.items()
)
supervisor = Supervisor(engine, gateway, Progress(io.StringIO()))
supervisor.adopt_orphans()
engine.rotate_log()
engine.start()
print(engine.guard_pid, flush=True)
try:
    with stop_on_signals():
        supervisor.keep()
except Stopped:
    supervisor.stop()
"""


def test_a_killed_guard_leaves_no_orphan(tmp_path: Path) -> None:
    """The supervisor adopts and ends what the guard would have ended, and starts anew."""
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, tmp_path], stdout=subprocess.PIPE, text=True
    )
    assert supervisor.stdout is not None
    guard_pid = int(supervisor.stdout.readline())
    log = tmp_path / "logs" / "engine.log"
    eventually(lambda: log.exists() and log.read_text().endswith("\n"))
    orphan = int(log.read_text())
    os.kill(guard_pid, signal.SIGKILL)
    eventually(lambda: len(log.read_text().split()) == 2)
    assert not Path(f"/proc/{orphan}").exists()
    supervisor.terminate()
    assert supervisor.wait(DEADLINE_S) == 0
    supervisor.stdout.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in log.read_text().split())


def test_a_log_is_private_and_the_last_one_is_kept(
    tmp_path: Path, started: Callable[..., Service]
) -> None:
    """Two runs, two files, 0600."""
    for word in ("first", "second"):
        engine = started("engine", f"print({word!r})")
        engine.rotate_log()
        engine.start()
        eventually(lambda engine=engine: engine.ended() is not None)
    assert engine.log.read_text() == "second\n"
    assert engine.log.with_name("engine.log.1").read_text() == "first\n"
    assert engine.log.stat().st_mode & 0o777 == 0o600


def test_pauses_grow_and_have_a_limit() -> None:
    """A command that never starts does not keep the machine busy."""
    pauses = [pause_s(crashes) for crashes in range(1, 30)]
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]
    assert max(pauses) == LONGEST_PAUSE_S


def test_progress_elsewhere_than_on_a_terminal_is_a_line_a_change() -> None:
    """A log is not flooded with the same words."""
    stream = io.StringIO()
    progress = Progress(stream)
    since = time.monotonic()
    for _ in range(5):
        progress.now("engine: warming up", since)
    progress.now("engine: loading", since)
    progress.done("ready")
    assert [line.split(" (")[0] for line in stream.getvalue().splitlines()] == [
        "engine: warming up",
        "engine: loading",
        "ready",
    ]


def test_the_cause_is_found_in_an_engines_log() -> None:
    """A refusal at boot, with all its reasons; not vLLM's summary of it."""
    log = """\
(EngineCore pid=7) ERROR 11-30 03:53:23 [core.py:1510] Traceback (most recent call last):
(EngineCore pid=7) ERROR 11-30 03:53:23 [core.py:1510]   File "core.py", line 1482, in run
(EngineCore pid=7) ERROR 11-30 03:53:23 [core.py:1510] saltwall_engine.errors.BootRefused: Refuses:
(EngineCore pid=7) ERROR 11-30 03:53:23 [core.py:1510]   - --watermark: remove it
(EngineCore pid=7) ERROR 11-30 03:53:23 [core.py:1510]   - PYTHONHASHSEED: unset it
(APIServer pid=3) Traceback (most recent call last):
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""
    assert engine_log.cause(log) == [
        "saltwall_engine.errors.BootRefused: Refuses:",
        "  - --watermark: remove it",
        "  - PYTHONHASHSEED: unset it",
    ]


def test_without_a_known_cause_the_end_of_the_log_is_shown() -> None:
    """Better than nothing."""
    assert engine_log.cause("one\n\nKilled\n") == ["one", "Killed"]


@pytest.mark.parametrize(
    ("log", "stage"),
    [
        ("", "importing vLLM"),
        ("INFO Starting to load model /m...\n", "loading the weights"),
        ("Starting to load model\nLoading weights took 1 s\n", "measuring memory"),
    ],
)
def test_stages_are_read_off_the_log(log: str, stage: str) -> None:
    """What the waiting user sees."""
    assert engine_log.stage(log) == stage
