"""Starts engine and gateway, keeps them running, and takes them down in order."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from saltwall_platform.stack import engine_log, guard
from saltwall_platform.stack.errors import StackError
from saltwall_platform.stack.progress import Progress
from saltwall_platform.stack.readiness import Readiness
from saltwall_platform.stack.service import Service

POLL_S: Final = 0.2
ASK_S: Final = 0.5
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """The user wants everything to stop; not an error, and no `except Exception` eats it."""


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Inside, the first SIGINT, SIGTERM or SIGHUP raises Stopped; later ones are not lost."""

    def stop(signum: int, frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped

    # nohup ignores SIGHUP, and means it.
    wanted = [s for s in SIGNALS if s != signal.SIGHUP or signal.getsignal(s) != signal.SIG_IGN]
    before = {signum: signal.signal(signum, stop) for signum in wanted}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


class Supervisor:
    """Runs an engine and a gateway; the main thread of one process."""

    def __init__(self, engine: Service, gateway: Service, progress: Progress) -> None:
        self._engine, self._gateway = engine, gateway
        self._services = (engine, gateway)
        self._progress = progress
        self._adopts = False

    def adopt_orphans(self) -> None:
        """Ends what a guard leaves behind that is killed itself.

        For a process of its own: every child that is no guard is taken for such an orphan.
        """
        guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 1)
        self._adopts = True

    def start(self, readiness: Readiness) -> None:
        """Starts both and waits until requests can be served.

        Raises:
            StackError: one of them ended before that.
        """
        for service in self._services:
            service.rotate_log()
            service.start()
        began = asked = time.monotonic()
        missing = "engine: starting"
        while missing:
            self._progress.now(missing, began)
            for service in self._services:
                code = service.ended()
                if code is not None:
                    raise StackError(explain(service, code))
            time.sleep(POLL_S)  # between looks at the services, and steps of the progress shown
            if time.monotonic() - asked >= ASK_S:
                missing, asked = readiness.missing(), time.monotonic()

    def keep(self) -> None:
        """Restarts what ends, until a signal raises Stopped."""
        while True:
            for service in self._services:
                code = service.ended()
                if code is not None:
                    self._sweep()
                    self._progress.done(
                        f"{service.name} ended (code {code}) and is started again: {service.log}"
                    )
                elif service.due:
                    service.start()
            time.sleep(POLL_S)  # between looks at the services

    def stop(self) -> None:
        """Ends both, the gateway first so that running answers can finish; a signal hurries."""

        def hurry(signum: int, frame: FrameType | None) -> None:
            for service in self._services:
                service.stop()

        before = {signum: signal.signal(signum, hurry) for signum in SIGNALS}
        try:
            for service in reversed(self._services):
                service.stop()
                began = time.monotonic()
                while service.running:
                    self._progress.now(f"stopping the {service.name}", began)
                    time.sleep(POLL_S)  # between steps of the progress shown
            self._sweep()
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)

    def _sweep(self) -> None:
        if not self._adopts:
            return
        guards = {service.guard_pid for service in self._services}
        me = os.getpid()
        while orphans := [
            pid for pid, parent, _ in guard.processes() if parent == me and pid not in guards
        ]:
            for pid in orphans:
                guard.send([pid, *guard.descendants(pid)], signal.SIGKILL)
                os.waitpid(pid, 0)


def explain(service: Service, code: int) -> str:
    """Why a service did not start, from its log."""
    why = "\n  ".join(engine_log.cause(service.log_text()))
    return f"the {service.name} did not start (code {code}):\n  {why}\nIts log: {service.log}"
