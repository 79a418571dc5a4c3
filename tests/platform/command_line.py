"""The `saltwall` command in the test's own process: the real entry point, started once."""

import sys
from dataclasses import dataclass

import pytest

from saltwall_platform.cli import main


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class CommandLine:
    """Runs commands as typed."""

    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch

    def __call__(self, *arguments: str) -> Result:
        """Runs `saltwall ARGUMENTS`."""
        self.capsys.readouterr()
        code = 0
        with self.monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["saltwall", *arguments])
            try:
                main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
        captured = self.capsys.readouterr()
        return Result(code, captured.out, captured.err)

    def ok(self, *arguments: str) -> str:
        """Runs a command that must succeed; returns its stdout."""
        result = self(*arguments)
        assert result.code == 0, result.err
        return result.out

    def refused(self, *arguments: str) -> str:
        """Runs a command that must be refused in one line; returns that line."""
        result = self(*arguments)
        assert result.code == 1
        assert result.out == ""
        lines = result.err.splitlines()
        assert len(lines) == 1, result.err
        return lines[0]
