"""The summary for a terminal."""

import math
from collections.abc import Iterator, Sequence

from saltwall_security.check import Verdict
from saltwall_security.report.document import Report
from saltwall_security.report.redaction import Redaction
from saltwall_security.report.words import headline, span, tested

LOUD = (Verdict.FAILED, Verdict.INCONCLUSIVE)


def summary(report: Report) -> str:
    """A table of the guarantees, and what was seen where one did not hold."""
    # The server's own words are in some of them, and a saved report may be anybody's.
    return "\n".join(map(Redaction(()), _lines(report))) + "\n"


def _lines(report: Report) -> Iterator[str]:
    target = report.target
    count = len(report.checks())
    yield f"{target.label}: {target.url}, model {target.model or 'not known'}"
    yield f"{count} check{'' if count == 1 else 's'} in {span(report.seconds)}, seed {report.seed}"
    yield ""
    yield from _table(_rows(report))
    for check in report.checks().values():
        if check.decides and check.verdict in LOUD:
            yield ""
            yield f"{check.verdict}: {check.id} ({check.guarantee})"
            yield f"  {check.seen}"
            if check.control:
                yield f"  Control: {check.control}"
            if check.advice and check.verdict is Verdict.FAILED:
                yield f"  {check.advice}"
    yield ""
    yield f"{headline(report)}. {tested(report)}"
    for entry in report.guarantees:
        if entry.in_part:
            yield f"{entry.id} held in part: not tested {', '.join(entry.untested)}."
    if report.conclusion.verdict is not Verdict.HELD:
        yield f"Exit code {report.conclusion.exit_code}: {report.conclusion.because}."
    unclear = [s.name for s in report.suites if s.verdict is Verdict.INCONCLUSIVE]
    if unclear:
        suites = " ".join(f"--suite {name}" for name in unclear)
        yield f"More time may tell, on a quiet machine: {suites} --budget {_longer(report)}"


def _longer(report: Report) -> str:
    return f"{math.ceil(2 * max(report.budget_s, report.seconds) / 60)}m"


def _rows(report: Report) -> list[list[str]]:
    baseline = report.baseline
    rows = [["", "GUARANTEE", report.target.label.upper()]]
    if baseline is not None:
        rows[0].append(baseline.target.label.upper())
    for index, entry in enumerate(report.guarantees):
        rows.append([entry.id, entry.claim, entry.outcome])
        if baseline is not None:
            rows[-1].append(baseline.guarantees[index].outcome)
    return rows


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
