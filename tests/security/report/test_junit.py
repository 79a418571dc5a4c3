"""JUnit XML: CI shows failures, doubts and gaps as what they are."""

from dataclasses import replace
from xml.etree.ElementTree import Element, fromstring

from made_reports import CHECK, ended, made, mixed, suite

from saltwall_security.check import Verdict
from saltwall_security.report.junit import junit


def parsed(text: str) -> Element:
    """The root of our own XML."""
    return fromstring(text)  # noqa: S314


def test_each_check_is_a_test_case_that_ended_as_it_did() -> None:
    """Failed is a failure, inconclusive an error, not tested skipped; only held passes."""
    ends = {verdict: ended(verdict, check=f"timing/{verdict.name}") for verdict in Verdict}
    root = parsed(junit(made(suite("timing", *ends.values()))))
    tags = {case.get("name"): case[0].tag for case in root.iter("testcase")}
    assert tags == {
        "HELD": "system-out",
        "FAILED": "failure",
        "INCONCLUSIVE": "error",
        "NOT_TESTED": "skipped",
    }
    counts = {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "4", "failures": "1", "errors": "1", "skipped": "1"}


def test_what_is_merely_reported_passes() -> None:
    """CI must end as the exit code says."""
    root = parsed(junit(mixed()))
    (load,) = [case for case in root.iter("testcase") if case.get("name") == "load"]
    assert [child.tag for child in load] == ["system-out"]


def test_whatever_was_seen_is_valid_xml() -> None:
    """Control characters have no place in XML 1.0, markup is text."""
    odd = replace(CHECK, verdict=Verdict.FAILED, seen="\x00 <b> & \ud800 ü")
    (failure,) = parsed(junit(made(suite("timing", odd)))).iter("failure")
    assert failure.get("message") == "� <b> & ? ü"
