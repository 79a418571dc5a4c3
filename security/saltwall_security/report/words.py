"""The words in which reports speak to people, the same in every form."""

from collections.abc import Mapping
from typing import Final

from saltwall_security.check import Verdict
from saltwall_security.report.document import GuaranteeEntry, Report, Value

MEANING: Final[Mapping[Verdict, str]] = {
    Verdict.HELD: "The attack was made, and would have seen the leak: its control did.",
    Verdict.FAILED: "The attack saw what it must not see.",
    Verdict.INCONCLUSIVE: "The attack was made and could not tell: too few samples, or its"
    " control saw nothing either. Not a pass.",
    Verdict.NOT_TESTED: "The attack was not made: what it needs was not given, or the target does"
    " not have what it is about.",
}


def headline(report: Report) -> str:
    """The conclusion in a few words."""
    failed = sum(entry.verdict is Verdict.FAILED for entry in report.guarantees)
    if failed:
        return f"{failed} guarantee{'s' if failed > 1 else ''} failed"
    if report.conclusion.exit_code:
        return "Could not tell"
    in_part = [entry.id for entry in report.guarantees if entry.in_part]
    return "All that was tested held" + (f", {', '.join(in_part)} in part" if in_part else "")


def tested(report: Report) -> str:
    """How much of everything the conclusion is about."""
    missing = [entry.id for entry in report.guarantees if entry.verdict is Verdict.NOT_TESTED]
    in_part = [entry.id for entry in report.guarantees if entry.in_part]
    only = f", only in part {', '.join(in_part)}" if in_part else ""
    total = len(report.guarantees)
    if not missing:
        return f"All {total} guarantees were tested{only}."
    count = total - len(missing)
    was = "was" if count == 1 else "were"
    return f"{count} of {total} guarantees {was} tested{only}, not {', '.join(missing)}."


def made(entry: GuaranteeEntry) -> str:
    """How many of a guarantee's checks ended in which way, and which are missing."""
    counts = ", ".join(f"{entry.counts[v]} {v}" for v in Verdict if v in entry.counts)
    return counts + (f"; without {', '.join(entry.untested)}" if entry.in_part else "")


def number(value: Value) -> str:
    """A figure as people read it: four significant digits, thousands apart."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}" if abs(value) >= 10_000 else str(value)
        case float():
            return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
        case _:
            return value


def span(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
