"""What ends an audit early, and what does not stop it from cleaning up."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""From a terminal, a supervisor, or a CI that cancels a job: often one after the other."""


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: what it has created is deleted."""

    def interrupt(signum: int, frame: object) -> None:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a script's background
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    before = {
        signum: signal.signal(signum, interrupt) for signum in ENDING if signum != signal.SIGINT
    }
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


@contextmanager
def cancelling(task: "asyncio.Task[Any]") -> Iterator[None]:
    """Each of them cancels the task, again and again; those that are ignored go on being so."""
    loop = task.get_loop()
    handlers = {signum: signal.getsignal(signum) for signum in ENDING}
    before = {each: handler for each, handler in handlers.items() if handler != signal.SIG_IGN}
    for signum in before:
        loop.add_signal_handler(signum, task.cancel)
    try:
        yield
    finally:
        for signum, handler in before.items():
            loop.remove_signal_handler(signum)
            signal.signal(signum, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """A further signal must lose no report and leave no tenants behind; neither we nor the commands
    hear it."""
    before = {signum: signal.signal(signum, signal.SIG_IGN) for signum in ENDING}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
