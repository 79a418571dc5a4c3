"""The summary for a terminal: aligned, and without what is not needed."""

from made_reports import CHECK, ended, made, mixed, suite

from saltwall_security.check import Verdict
from saltwall_security.report.summary import summary


def test_each_guarantee_has_a_line_with_its_verdicts() -> None:
    """The target's and the baseline's, each in its column."""
    lines = summary(mixed()).splitlines()
    head = next(line for line in lines if "GUARANTEE" in line)
    row = next(line for line in lines if line.startswith("G2 "))
    assert row.index("held") == head.index("TESTED")
    assert row.index("failed") == head.index("STOCK")


def test_what_did_not_hold_is_explained() -> None:
    """What was seen, what the control saw, what to do; not for what held."""
    text = summary(made(suite("timing", ended(Verdict.FAILED))))
    assert "failed: timing/ttft (G2)\n  AUC 0.51\n  Control: AUC 0.99\n  Salt the cache" in text
    assert "Salt the cache" not in summary(made(suite("timing", CHECK)))


def test_the_last_line_is_the_conclusion() -> None:
    """The one that is still on the screen."""
    assert "All that was tested held. 1 of 12" in summary(made(suite("timing", CHECK)))
    failed = summary(made(suite("timing", ended(Verdict.FAILED))))
    assert failed.splitlines()[-1] == "Exit code 1: G2 failed."


def test_a_saved_report_writes_on_no_terminal() -> None:
    """Whoever wrote it."""
    found = mixed()
    target = found.target.model_copy(update={"model": "words\x1b[2J\nAll held"})
    text = summary(found.model_copy(update={"target": target}))
    assert "\x1b" not in text
    assert "\nAll held" not in text
