"""A pytest plugin that records each test's outcome as it ends: one JSON object a line."""

import json
from pathlib import Path
from typing import Any, TextIO

import pytest
import vllm


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--outcomes` and `--vllm`."""
    parser.addoption("--outcomes", type=Path, required=True, help="the file to write")
    parser.addoption("--vllm", required=True, help="the version that is to be tested")


def pytest_configure(config: pytest.Config) -> None:
    """Starts the record.

    Raises:
        UsageError: another vLLM was found than the one to be tested.
    """
    if vllm.__version__.partition("+")[0] != config.getoption("--vllm"):
        raise pytest.UsageError(f"this is vLLM {vllm.__version__}, from {vllm.__file__}")
    record = config.getoption("--outcomes").open("w", encoding="utf-8", buffering=1)
    config.pluginmanager.register(_Recorder(record))
    config.add_cleanup(record.close)


class _Recorder:
    def __init__(self, record: TextIO) -> None:
        self._record = record
        self._outcome = ""
        self._detail = ""
        self._seconds = 0.0

    def pytest_runtest_logstart(self) -> None:
        self._outcome, self._detail, self._seconds = "", "", 0.0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds += report.duration
        if report.failed:
            self._outcome = "failed" if report.when == "call" else "error"
            self._detail += report.longreprtext
        elif report.skipped:
            self._outcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"
        elif report.when == "call":
            self._outcome = "passed"

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(nodeid, self._outcome, self._detail, self._seconds)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(report.nodeid, "error", report.longreprtext, 0.0)

    def _write(self, test: str, outcome: str, detail: str, seconds: float) -> None:
        line = {"test": test, "outcome": outcome, "seconds": round(seconds, 3), "detail": detail}
        self._record.write(json.dumps(line) + "\n")


@pytest.fixture
def caplog_vllm(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The one fixture that the tests take from vLLM's conftest, which needs more than they do."""
    import logging

    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    return caplog
