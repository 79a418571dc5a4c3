"""The forms in which a report can be had, by name."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

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
    "junit": "report.xml",
    "sarif": "report.sarif",
    "html": "report.html",
}
"""What `write` makes: the JSON first, from which the others can be made, and what is slow last."""


class Written(NamedTuple):
    """The files that were written, and why others were not."""

    files: list[Path]
    problems: list[str]


def write(report: Report, directory: Path) -> Written:
    """Writes each form that can be had into a directory, whatever becomes of the others."""
    written: list[Path] = []
    problems: list[str] = []
    for form, name in FILES.items():
        path = directory / name
        try:
            path.write_text(FORMS[form](report), encoding="utf-8")
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
        except Exception as error:  # what it says may quote the report
            problems.append(f"{path}: {type(error).__name__}")
        else:
            written.append(path)
    return Written(written, problems)
