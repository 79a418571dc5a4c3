"""The operator's commands for an audit on this machine, without starting Python for each."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path

from saltwall_security.errors import AuditError
from saltwall_security.operator import TIMEOUT_S, CommandLine, described


class PreparedCommandLine(CommandLine):
    """Runs each `saltwall` command in a fork of a process that has imported it and nothing else.

    A command does and prints what it would as a program, a second sooner.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__([sys.executable, "-m", "saltwall_platform.cli"], environ)
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["saltwall_platform.cli"])

    def _done(self, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        with tempfile.TemporaryDirectory(prefix="saltwall-command-") as directory:
            said = [Path(directory, name) for name in ("stdout", "stderr")]
            given = (arguments, self.environ | environ, said)
            process = self._context.Process(target=_command, args=given)
            process.start()
            process.join(TIMEOUT_S)
            if process.exitcode is None:
                process.kill()
                process.join()
                late = f"{described(arguments)} has not ended after {TIMEOUT_S:.0f} s"
                raise AuditError(late)
            texts = [path.read_text() if path.exists() else "" for path in said]
        return subprocess.CompletedProcess(arguments, process.exitcode, *texts)


def _command(arguments: Sequence[str], environ: Mapping[str, str], said: Sequence[Path]) -> None:
    """In the fork: as whoever starts the program sets it up."""
    for stream, path in enumerate([Path(os.devnull), *said]):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), stream)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["saltwall", *arguments]
    from saltwall_platform.cli import main

    main()
