"""The report as a document, `saltwall-audit/1`: what is saved, and what every form is made of."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from saltwall_security.check import Verdict
from saltwall_security.errors import AuditError

FORMAT: Final = "saltwall-audit/1"

Value = bool | int | float | str | None


class Entry(BaseModel):
    """A part of the document; nothing may be left out, and nothing may be added."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class PlotEntry(Entry):
    """The data of a plot, as in `check.Plot`; None where a value is missing."""

    title: str
    kind: Literal["distribution", "lines", "points"]
    series: dict[str, list[float | None]]
    axes: tuple[str, str]
    x: list[float | None]
    log: Literal["", "x", "y", "xy"]


class CheckEntry(Entry):
    """One check, as in `check.Check`."""

    id: str
    guarantee: str | None
    verdict: Verdict
    claim: str
    seen: str
    figures: dict[str, Value]
    control: str | None
    plots: list[PlotEntry]
    table: list[dict[str, Value]]
    advice: str

    @property
    def decides(self) -> bool:
        """Whether the conclusion depends on it; otherwise it is merely reported."""
        return self.guarantee is not None


class SuiteEntry(Entry):
    """One suite's checks, and how long they took."""

    name: str
    title: str
    guarantees: list[str]
    verdict: Verdict
    seconds: float
    checks: list[CheckEntry]


class GuaranteeEntry(Entry):
    """One guarantee's verdict over all suites, and how many checks ended in which way.

    `untested` are the checks of its parts that were not tested: without them it holds in part.
    """

    id: str
    claim: str
    verdict: Verdict
    counts: dict[Verdict, int]
    untested: tuple[str, ...] = ()

    @property
    def in_part(self) -> bool:
        """Whether it held, as far as it was tested, and that was not all of it."""
        return self.verdict is Verdict.HELD and bool(self.untested)

    @property
    def outcome(self) -> str:
        """The verdict as people read it."""
        return f"{self.verdict} in part" if self.in_part else self.verdict


class Conclusion(Entry):
    """How the run ended: 0 all that was tested held, 1 a guarantee failed, 2 could not tell."""

    verdict: Verdict
    exit_code: Literal[0, 1, 2]
    because: str


class TargetEntry(Entry):
    """What was attacked, and with what.

    `server` is what the server says of itself, if it does; `access` what the auditor was given
    beyond the URL and `tenants` tenants.
    """

    label: str
    url: str
    model: str | None
    server: str | None
    tenants: int
    access: list[str]


class MachineEntry(Entry):
    """Where the auditor ran."""

    system: str
    python: str
    cpus: int
    memory_gb: float | None


class Report(Entry):
    """One run; `baseline` is the same suites on another target.

    `asked` are the suites that were chosen by name; none means all.
    """

    format: Literal["saltwall-audit/1"]
    auditor: str
    started: str
    seconds: float
    budget_s: float
    seed: str
    command: str
    asked: list[str]
    target: TargetEntry
    machine: MachineEntry
    conclusion: Conclusion
    guarantees: list[GuaranteeEntry]
    suites: list[SuiteEntry]
    baseline: "Report | None"

    @field_validator("started")
    @classmethod
    def _is_a_time(cls, started: str) -> str:
        try:
            datetime.fromisoformat(started).astimezone(UTC)
        except (ValueError, OverflowError):
            raise ValueError("it is no time") from None
        return started

    def checks(self) -> dict[str, CheckEntry]:
        """All checks by id."""
        return {check.id: check for suite in self.suites for check in suite.checks}

    def json_text(self) -> str:
        """As it is saved."""
        return self.model_dump_json(indent=1) + "\n"


def read(path: Path) -> Report:
    """A saved report.

    Raises:
        AuditError: the file is not there, or holds something else.
    """
    try:
        return Report.model_validate_json(path.read_bytes())
    except OSError as error:
        raise AuditError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise AuditError(f"{path} is not a {FORMAT} report: {place}: {first['msg']}") from None
