"""Makes the document of a run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from saltwall_security.check import Check, Plot
from saltwall_security.report.conclusion import conclude, guarantees, suite_verdict
from saltwall_security.report.document import (
    FORMAT,
    CheckEntry,
    PlotEntry,
    Report,
    SuiteEntry,
    TargetEntry,
    Value,
)
from saltwall_security.report.machine import machine
from saltwall_security.report.redaction import Redaction, redaction
from saltwall_security.run import SuiteResult
from saltwall_security.target import Target


@dataclass(frozen=True)
class Circumstances:
    """How a run was made.

    Args:
        started: with its time zone.
        seconds: how long it took; `budget_s`: how long it was given.
        command: what to type to repeat it.
        asked: the suites that were chosen by name.
        server: what the server says of itself.
    """

    started: datetime
    seconds: float
    budget_s: float
    seed: str
    command: str
    asked: Sequence[str] = ()
    server: str | None = None


def report(
    target: Target,
    results: Sequence[SuiteResult],
    how: Circumstances,
    baseline: Report | None = None,
) -> Report:
    """The document of a run on `target`; no key, salt or password that was given is in it."""
    clean = _Cleaner(redaction(target))
    suites = [clean.suite(result) for result in results]
    return Report(
        format=FORMAT,
        auditor=f"saltwall {version('saltwall')}",
        started=how.started.isoformat(timespec="seconds"),
        seconds=round(how.seconds, 1),
        budget_s=how.budget_s,
        seed=how.seed,
        command=clean.text(how.command),
        asked=list(how.asked),
        target=TargetEntry(
            label=clean.text(target.label),
            url=clean.text(_without_user(target.url)),
            model=None if target.model is None else clean.text(target.model),
            server=None if how.server is None else clean.text(how.server),
            tenants=len(target.tenants),
            access=sorted(target.access()),
        ),
        machine=machine(),
        conclusion=conclude(suites, how.asked),
        guarantees=guarantees(suites),
        suites=suites,
        baseline=baseline,
    )


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


class _Cleaner:
    """Turns what suites made into plain data that JSON can hold, without secrets."""

    def __init__(self, redaction: Redaction) -> None:
        self.text = redaction

    def suite(self, result: SuiteResult) -> SuiteEntry:
        checks = [self._check(check) for check in result.checks]
        return SuiteEntry(
            name=result.suite.name,
            title=result.suite.title,
            guarantees=list(result.suite.guarantees),
            verdict=suite_verdict(checks),
            seconds=round(result.seconds, 1),
            checks=checks,
        )

    def _check(self, check: Check) -> CheckEntry:
        return CheckEntry(
            id=check.id,
            guarantee=check.guarantee,
            verdict=check.verdict,
            claim=self.text(check.claim),
            seen=self.text(check.seen),
            figures=self._row(check.figures),
            control=None if check.control is None else self.text(check.control),
            plots=[self._plot(plot) for plot in check.plots],
            table=[self._row(row) for row in check.table],
            advice=self.text(check.advice),
        )

    def _plot(self, plot: Plot) -> PlotEntry:
        return PlotEntry.model_validate(
            {
                "title": self.text(plot.title),
                "kind": plot.kind,
                "series": {
                    self.text(name): [_number(value) for value in values]
                    for name, values in plot.series.items()
                },
                "axes": tuple(plot.axes),
                "x": [_number(value) for value in plot.x],
                "log": plot.log,
            }
        )

    def _row(self, row: Mapping[str, Any]) -> dict[str, Value]:
        return {self.text(name): self._value(value) for name, value in row.items()}

    def _value(self, value: Any) -> Value:
        if isinstance(value, str):
            return self.text(str(value))
        plain = _number(value)
        return plain if isinstance(plain, bool | int | float | None) else self.text(str(plain))


def _number(value: Any) -> Any:
    """A number of Python's, numpy's included; None for what JSON has no number for."""
    plain = value.item() if hasattr(value, "item") else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain
