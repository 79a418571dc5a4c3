"""SARIF: failures are errors, doubts are warnings, and nothing else is a finding."""

import json
from typing import Any

import pytest
from made_reports import ended, made, mixed, suite

from saltwall_security.check import Verdict
from saltwall_security.report.document import Report
from saltwall_security.report.sarif import sarif


def the_run(report: Report) -> dict[str, Any]:
    """The one run of a log."""
    document = json.loads(sarif(report))
    assert document["version"] == "2.1.0"
    (found,) = document["runs"]
    return dict(found)


@pytest.mark.parametrize(
    ("verdict", "level"), [(Verdict.FAILED, "error"), (Verdict.INCONCLUSIVE, "warning")]
)
def test_what_did_not_hold_is_a_finding(verdict: Verdict, level: str) -> None:
    """With what was seen, under the rule of its check."""
    run = the_run(made(suite("timing", ended(verdict))))
    (result,) = run["results"]
    rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert (result["ruleId"], rule["id"], result["level"]) == ("timing/ttft", "timing/ttft", level)
    assert "AUC 0.51" in result["message"]["text"]
    assert "G2" in rule["properties"]["tags"]


def test_what_held_and_what_was_not_tested_is_none() -> None:
    """Hosts would show it as an alert; what is merely reported is a note."""
    levels = {result["ruleId"]: result["level"] for result in the_run(mixed())["results"]}
    assert levels == {"eviction/flood": "warning", "eviction/load": "note"}


def test_a_finding_is_the_same_one_in_the_next_run() -> None:
    """So that hosts close it when it is gone, and do not open it twice."""
    first, second = (the_run(made(suite("timing", ended(Verdict.FAILED)))) for _ in range(2))
    prints = [run["results"][0]["partialFingerprints"] for run in (first, second)]
    assert prints[0] == prints[1]
    assert the_run(mixed())["automationDetails"] != {}
