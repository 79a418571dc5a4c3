"""The forms in which a report can be had, by name."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from saltwall_security.report.document import Report
from saltwall_security.report.junit import junit
from saltwall_security.report.sarif import sarif
from saltwall_security.report.summary import summary


def html(report: Report) -> str:
    """The page; drawing its plots takes matplotlib, which is loaded only here."""
    from saltwall_security.report.page import page

    return page(report)


FORMS: Final[Mapping[str, Callable[[Report], str]]] = {
    "summary": summary,
    "json": Report.json_text,
    "html": html,
    "junit": junit,
    "sarif": sarif,
}
FILES: Final[Mapping[str, str]] = {
    "json": "report.json",
    "html": "report.html",
    "junit": "report.xml",
    "sarif": "report.sarif",
}
"""What `write` makes."""


def write(report: Report, directory: Path) -> list[Path]:
    """Writes every form into a directory; the JSON first, from which the others can be made."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for form, name in FILES.items():
        path = directory / name
        path.write_text(FORMS[form](report), encoding="utf-8")
        written.append(path)
    return written
