"""Audit reports to write: of checks as suites make them."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from saltwall_security.check import Check, Plot, Verdict
from saltwall_security.report.build import Circumstances, report
from saltwall_security.report.document import Report
from saltwall_security.run import SuiteResult
from saltwall_security.suite import Audit, Suite
from saltwall_security.target import Target, Tenant

KEY, SALT = "a-key-of-some-server", "a-salt-of-some-tenant"
TARGET = Target(
    "http://admin:password@127.0.0.1:9/v1",
    [Tenant("a", KEY), Tenant("b", cache_salt=SALT)],
    model="demo",
    label="Tested",
)
HOW = Circumstances(
    started=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    seconds=12.5,
    budget_s=120,
    seed="5eed",
    command="saltwall audit run --seed 5eed",
    server="vLLM 0.32.0",
)
CHECK = Check(
    "timing/ttft",
    "G2",
    Verdict.HELD,
    "What others have cached does not show in the time to first token",
    "AUC 0.51",
    {"auc": 0.51, "samples": 250},
    control="AUC 0.99",
    advice="Salt the cache of each tenant.",
)
PLOTS = (
    Plot(
        "Time to first token <all>",
        "distribution",
        {"cached by another": [0.1, 0.2, 0.3], "cached by nobody": [0.2, 0.3, 0.4]},
        ("time (s)", "share"),
    ),
    Plot("Hit rate", "lines", {"$victim$": [1.0, 0.5]}, ("time (s)", "rate"), [0, 1]),
    Plot("Collisions", "points", {"found": [1, 10]}, ("bits", "count"), [16, 20], log="y"),
)


async def _nothing(audit: Audit) -> AsyncIterator[Check]:
    return
    yield


def ended(verdict: Verdict, guarantee: str | None = "G2", check: str = "timing/ttft") -> Check:
    """A check that ended so."""
    return replace(CHECK, id=check, verdict=verdict, guarantee=guarantee)


def suite(name: str, *checks: Check) -> SuiteResult:
    """What a suite of that name has found."""
    guarantees = tuple(dict.fromkeys(check.guarantee for check in checks if check.guarantee))
    return SuiteResult(Suite(name, f"The suite {name}", guarantees, _nothing), checks, 1.5)


def made(*suites: SuiteResult, asked: Sequence[str] = (), label: str = "Tested") -> Report:
    """The report of these suites."""
    return report(replace(TARGET, label=label), suites, replace(HOW, asked=asked))


def mixed() -> Report:
    """A report with every verdict, figures, plots and a table, and a baseline beside it."""
    flood = replace(ended(Verdict.INCONCLUSIVE, "G4", "eviction/flood"), plots=PLOTS)
    strict = replace(ended(Verdict.NOT_TESTED, "G5", "eviction/strict"), seen="No operator & <b>")
    load = replace(ended(Verdict.FAILED, None, "eviction/load"), table=[{"requests": 3, "s": 0.5}])
    here = made(suite("timing", CHECK), suite("eviction", flood, strict, load))
    there = made(suite("timing", ended(Verdict.FAILED)), label="Stock")
    return here.model_copy(update={"baseline": there})
