"""The operator's commands for an audit on this machine, without starting Python for each."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext

from saltwall_platform.cli.audit_signals import ENDING
from saltwall_security.errors import AuditError
from saltwall_security.operator import TIMEOUT_S, CommandLine, described

CHUNK = 1 << 16


class PreparedCommandLine(CommandLine):
    """Runs each `saltwall` command in a fork of a process that has imported it and nothing else.

    A command does and prints what it would as a program, a second sooner.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__([sys.executable, "-m", "saltwall_platform.cli"], environ)
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["saltwall_platform.cli"])

    def _done(self, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        pipes = [self._context.Pipe(duplex=False) for _ in ("stdout", "stderr")]
        ignored = [signum for signum in ENDING if signal.getsignal(signum) is signal.SIG_IGN]
        written = [end for _, end in pipes]
        given = (arguments, self.environ | environ, written, ignored)
        process = self._context.Process(target=_command, args=given)
        process.start()
        for end in written:
            end.close()
        until = time.monotonic() + TIMEOUT_S
        try:
            texts = _read([end for end, _ in pipes], until)
            process.join(max(0.0, until - time.monotonic()))
        finally:
            for end, _ in pipes:
                end.close()
            late = process.exitcode is None
            if late:  # or we were interrupted
                process.kill()
                process.join()
        if late:
            raise AuditError(f"{described(arguments)} has not ended after {TIMEOUT_S:.0f} s")
        return subprocess.CompletedProcess(arguments, process.exitcode or 0, *texts)


def _read(ends: Sequence[Connection], until: float) -> list[str]:
    """All that is written to the pipes before a moment: a new key is among it, for no file."""
    found = dict.fromkeys(ends, b"")
    left = list(ends)
    while left and (ready := wait(left, max(0.0, until - time.monotonic()))):
        for end in left[:]:
            if end in ready:
                chunk = os.read(end.fileno(), CHUNK)
                found[end] += chunk
                if not chunk:
                    left.remove(end)
    return [content.decode(errors="replace") for content in found.values()]


def _command(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    written: Sequence[Connection],
    ignored: Sequence[signal.Signals],
) -> None:
    """In the fork: as whoever starts the program sets it up."""
    for signum in ignored:
        signal.signal(signum, signal.SIG_IGN)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    for stream, end in enumerate(written, start=1):
        os.dup2(end.fileno(), stream)
        end.close()
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["saltwall", *arguments]
    from saltwall_platform.cli import main

    main()
