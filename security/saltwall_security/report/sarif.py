"""SARIF 2.1.0, which code hosts show as security findings (OASIS standard, 2020).

A check is a rule, named under its guarantee; failed checks are errors, inconclusive ones warnings.
What held is no result: hosts would show it as a finding.
"""

import hashlib
import json
from datetime import UTC, datetime
from typing import Any, Final

from saltwall_security.check import Verdict
from saltwall_security.guarantees import GUARANTEES
from saltwall_security.report.document import CheckEntry, Report

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS: Final = {Verdict.FAILED: "error", Verdict.INCONCLUSIVE: "warning"}
ARTIFACT: Final = "report.json"
"""Code hosts want a file for each finding: the report, since the fault is in no file of theirs."""
_UTC: Final = "%Y-%m-%dT%H:%M:%SZ"


def sarif(report: Report) -> str:
    """The findings of a run."""
    checks = list(report.checks().values())
    run = {
        "tool": {
            "driver": {
                "name": "saltwall audit",
                "version": report.auditor.removeprefix("saltwall "),
                "rules": [_rule(check) for check in checks],
            }
        },
        "automationDetails": {"id": f"saltwall-audit/{report.target.label}/"},
        "invocations": [
            {
                "executionSuccessful": True,
                "commandLine": report.command,
                "startTimeUtc": f"{datetime.fromisoformat(report.started).astimezone(UTC):{_UTC}}",
                "exitCode": report.conclusion.exit_code,
            }
        ],
        "results": [
            _result(report, index, check)
            for index, check in enumerate(checks)
            if check.verdict in LEVELS
        ],
        "properties": {
            "conclusion": report.conclusion.because,
            "guarantees": {entry.id: entry.outcome for entry in report.guarantees},
            "seed": report.seed,
        },
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=1) + "\n"


def _rule(check: CheckEntry) -> dict[str, Any]:
    guarantee = check.guarantee or ""
    about = f"{guarantee}: {GUARANTEES[guarantee]}" if guarantee in GUARANTEES else "Reported only."
    return {
        "id": check.id,
        "name": "".join(part.capitalize() for part in check.id.replace("/", "-").split("-")),
        "shortDescription": {"text": check.claim},
        "fullDescription": {"text": f"{check.claim} ({about})"},
        "help": {"text": check.advice or about},
        "properties": {"tags": ["security", *([guarantee] if guarantee else [])]},
    }


def _result(report: Report, index: int, check: CheckEntry) -> dict[str, Any]:
    level = LEVELS[check.verdict] if check.decides else "note"
    control = f" Control: {check.control}" if check.control else ""
    same = hashlib.sha256(f"{report.target.label}\0{check.id}".encode()).hexdigest()
    return {
        "ruleId": check.id,
        "ruleIndex": index,
        "level": level,
        "message": {"text": f"{check.seen}{control}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": ARTIFACT},
                    "region": {"startLine": 1},
                },
                "logicalLocations": [{"fullyQualifiedName": report.target.url}],
            }
        ],
        "partialFingerprints": {"saltwallCheck/v1": same},
        "properties": {"verdict": check.verdict, "figures": check.figures},
    }
