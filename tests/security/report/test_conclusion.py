"""What a run amounts to: 0 all that was tested held, 1 a guarantee failed, 2 could not tell."""

from collections.abc import Sequence

import pytest
from made_reports import CHECK, ended, made, suite

from saltwall_security.check import Check, Verdict
from saltwall_security.guarantees import ESSENTIAL, GUARANTEES
from saltwall_security.report.page import page
from saltwall_security.report.summary import summary


def test_all_that_was_tested_held_is_0() -> None:
    """Guarantees that nothing was about, and checks that were not made, do not hinder it."""
    missing = ended(Verdict.NOT_TESTED, "G5", "timing/strict")
    conclusion = made(suite("timing", CHECK, missing)).conclusion
    assert (conclusion.verdict, conclusion.exit_code) == (Verdict.HELD, 0)


def test_a_failure_is_1_and_outweighs_doubt() -> None:
    """Also where another check of the same guarantee held, and another could not tell."""
    doubt = ended(Verdict.INCONCLUSIVE, "G3", "recovery/words")
    failure = ended(Verdict.FAILED, "G2", "timing/chat")
    report = made(suite("recovery", doubt), suite("timing", CHECK, failure))
    assert report.conclusion.exit_code == 1
    assert report.conclusion.because == "G2 failed"


def test_one_doubt_is_2() -> None:
    """Whatever else held: inconclusive is never a pass."""
    doubt = ended(Verdict.INCONCLUSIVE, "G2", "timing/chat")
    report = made(suite("timing", CHECK, doubt))
    assert report.conclusion.exit_code == 2
    assert "G2" in report.conclusion.because


def test_a_suite_that_was_asked_for_must_be_tested() -> None:
    """Otherwise 2; not asked for by name, it may be left out."""
    suites = (
        suite("timing", CHECK),
        suite("ticket", ended(Verdict.NOT_TESTED, "G7", "ticket/access")),
    )
    assert made(*suites).conclusion.exit_code == 0
    asked = made(*suites, asked=["timing", "ticket"]).conclusion
    assert asked.exit_code == 2
    assert "ticket" in asked.because
    assert asked.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("checks", [[], [ended(Verdict.NOT_TESTED)]], ids=["none", "not tested"])
def test_nothing_tested_is_2(checks: list) -> None:
    """An empty run proves nothing."""
    conclusion = made(suite("timing", *checks)).conclusion
    assert (conclusion.exit_code, conclusion.because) == (2, "nothing was tested")


@pytest.mark.parametrize("verdict", [Verdict.FAILED, Verdict.INCONCLUSIVE])
def test_what_is_merely_reported_decides_nothing(verdict: Verdict) -> None:
    """A check without a guarantee."""
    report = made(suite("timing", CHECK, ended(verdict, None, "timing/load")))
    assert report.conclusion.exit_code == 0
    assert report.suites[0].verdict is Verdict.HELD


def test_every_guarantee_is_there_with_the_worst_verdict() -> None:
    """Also those that were not tested, which say so."""
    failure = ended(Verdict.FAILED, "G2", "timing/chat")
    entries = {entry.id: entry for entry in made(suite("timing", CHECK, failure)).guarantees}
    assert list(entries) == list(GUARANTEES)
    assert entries["G2"].verdict is Verdict.FAILED
    assert entries["G2"].counts == {Verdict.HELD: 1, Verdict.FAILED: 1}
    assert {e.verdict for name, e in entries.items() if name != "G2"} == {Verdict.NOT_TESTED}


STRANGERS = ended(Verdict.NOT_TESTED, "G7", "ticket/strangers")
KEYS = ended(Verdict.HELD, "G7", "keys/timing")
WHOLE = tuple(ended(Verdict.HELD, "G7", check) for check in ESSENTIAL["G7"])


@pytest.mark.parametrize("checks", [(KEYS,), (KEYS, STRANGERS), (KEYS, *WHOLE[1:])], ids=len)
def test_a_guarantee_without_its_essential_checks_has_held_in_part(checks: Sequence[Check]) -> None:
    """Every form says so; it is all that was tested, so that the exit code is 0."""
    report = made(suite("keys", *checks))
    assert report.conclusion.exit_code == 0
    assert report.conclusion.because.endswith("G7, G7 in part")
    entry = next(entry for entry in report.guarantees if entry.id == "G7")
    assert (entry.verdict, entry.outcome) == (Verdict.HELD, "held in part")
    assert "ticket/strangers" in entry.untested
    text = summary(report)
    assert "All that was tested held, G7 in part. 1 of 12 guarantees was tested, only in" in text
    assert "G7 held in part: not tested ticket/strangers" in text
    assert "without ticket/strangers" in page(report)
    assert '"untested":["ticket/strangers"' in report.model_dump_json()


def test_a_guarantee_with_its_essential_checks_has_held() -> None:
    """Whatever else was not tested; and one that failed has not failed in part."""
    others = (KEYS, ended(Verdict.NOT_TESTED, "G7", "keys/models"))
    assert "in part" not in summary(made(suite("ticket", *others, *WHOLE)))
    assert "in part" not in summary(made(suite("keys", ended(Verdict.FAILED, "G7", "keys/x"))))
