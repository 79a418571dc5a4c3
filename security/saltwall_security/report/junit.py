"""JUnit XML, which CI systems show as tests: a check a test case.

The format is Jenkins' and Maven Surefire's: https://github.com/testmoapp/junitxml describes it.
"""

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from saltwall_security.check import Verdict
from saltwall_security.report.document import CheckEntry, Report, SuiteEntry
from saltwall_security.report.words import number

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report) -> str:
    """Failed checks are failures, inconclusive ones errors, those not made skipped.

    What is merely reported passes, with what was seen as its output.
    """
    root = Element("testsuites", name=f"Saltwall audit of {_text(report.target.label)}")
    totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for suite in report.suites:
        element = _suite(report, suite)
        root.append(element)
        for name in totals:
            totals[name] += int(element.get(name, 0))
    for name, count in totals.items():
        root.set(name, str(count))
    root.set("time", str(report.seconds))
    indent(root, " ")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _suite(report: Report, suite: SuiteEntry) -> Element:
    cases = [_case(suite, check) for check in suite.checks]
    element = Element(
        "testsuite",
        name=f"saltwall.audit.{suite.name}",
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        errors=str(sum(case.find("error") is not None for case in cases)),
        skipped=str(sum(case.find("skipped") is not None for case in cases)),
        time=str(suite.seconds),
        timestamp=report.started,
    )
    element.extend(cases)
    return element


def _case(suite: SuiteEntry, check: CheckEntry) -> Element:
    name = check.id.removeprefix(f"{suite.name}/")
    case = Element("testcase", name=_text(name), classname=f"saltwall.audit.{suite.name}")
    seen = _text(check.seen)
    match check.verdict:
        case Verdict.NOT_TESTED:
            SubElement(case, "skipped", message=seen)
        case Verdict.FAILED if check.decides:
            SubElement(case, "failure", message=seen, type=str(check.guarantee)).text = _all(check)
        case Verdict.INCONCLUSIVE if check.decides:
            SubElement(case, "error", message=seen, type="inconclusive").text = _all(check)
        case _:
            SubElement(case, "system-out").text = _all(check)
    return case


def _all(check: CheckEntry) -> str:
    lines = [f"Claim: {check.claim}", f"Seen: {check.seen}"]
    lines += [f"Control: {check.control}"] if check.control else []
    lines += [f"{name} = {number(value)}" for name, value in check.figures.items()]
    if check.advice and check.verdict is Verdict.FAILED:
        lines.append(check.advice)
    return _text("\n".join(lines))


def _text(text: str) -> str:
    """Without the characters that XML 1.0 has no way to write."""
    return _NOT_XML.sub("�", text)
