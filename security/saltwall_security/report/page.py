"""The report as one page of HTML: no script, nothing from elsewhere, light or dark."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from saltwall_security.check import Verdict
from saltwall_security.guarantees import GUARANTEES
from saltwall_security.report import plots, words
from saltwall_security.report.document import (
    CheckEntry,
    GuaranteeEntry,
    PlotEntry,
    Report,
    SuiteEntry,
)

TEMPLATE = "page.html.j2"


@dataclass(frozen=True)
class Row:
    """A guarantee, here and on the baseline."""

    here: GuaranteeEntry
    there: GuaranteeEntry | None
    suites: Sequence[str]


@dataclass(frozen=True)
class Section:
    """A suite's checks, each with the baseline's of the same id."""

    suite: SuiteEntry
    pairs: Sequence[tuple[CheckEntry | None, CheckEntry | None]]


def page(report: Report) -> str:
    """The page; plots are drawn for it."""
    numbers = count()

    def svg(plot: PlotEntry) -> Markup:
        return plots.svg(plot, f"plot-{next(numbers)}")

    return _template().render(
        report=report,
        rows=_rows(report),
        sections=_sections(report),
        claims=GUARANTEES,
        verdicts=list(Verdict),
        words=words,
        svg=svg,
    )


def _rows(report: Report) -> list[Row]:
    there = {} if report.baseline is None else {e.id: e for e in report.baseline.guarantees}
    return [
        Row(
            entry,
            there.get(entry.id),
            [s.name for s in report.suites if any(c.guarantee == entry.id for c in s.checks)],
        )
        for entry in report.guarantees
    ]


def _sections(report: Report) -> list[Section]:
    there = {} if report.baseline is None else {s.name: s for s in report.baseline.suites}
    return [Section(suite, _pairs(suite, there.get(suite.name))) for suite in report.suites]


def _pairs(
    here: SuiteEntry, there: SuiteEntry | None
) -> list[tuple[CheckEntry | None, CheckEntry | None]]:
    ours = {check.id: check for check in here.checks}
    theirs = {} if there is None else {check.id: check for check in there.checks}
    return [(ours.get(name), theirs.get(name)) for name in {**ours, **theirs}]


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("saltwall_security", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(TEMPLATE)
