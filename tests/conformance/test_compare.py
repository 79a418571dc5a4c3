"""What `make conformance` calls a difference, on the committed list of stock vLLM's outcomes."""

import comparison
import pytest
import run
import sdist
from comparison import Difference

VERSION = "0.32.0"


@pytest.fixture
def stock() -> dict[str, str]:
    """The committed list."""
    return comparison.parse(run.stock_list(VERSION).read_text().splitlines())


def records(outcomes: dict[str, str]) -> run.Records:
    """What a run with these outcomes leaves."""
    return {test: {"outcome": outcome, "detail": ""} for test, outcome in outcomes.items()}


def test_stocks_own_outcomes_are_no_difference(stock: dict[str, str]) -> None:
    """The list agrees with itself, and the exit code is 0."""
    assert sum(outcome == "passed" for outcome in stock.values()) > 700
    assert comparison.differences(stock, stock) == []
    assert run.compare(VERSION, "forced", records(stock), {}) == 0


@pytest.mark.parametrize(("before", "after"), [("passed", "failed"), ("failed", "passed")])
def test_one_other_outcome_is_found(
    stock: dict[str, str], before: str, after: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One test of all that ends otherwise, better or worse, is named, and the exit code is 1."""
    test = next(t for t, outcome in stock.items() if outcome == before)
    here = stock | {test: after}
    assert comparison.differences(stock, here) == [Difference(test, before, after)]
    assert run.compare(VERSION, "forced", records(here), {}) == 1
    assert f"{test}: {before} on stock, {after} here" in capsys.readouterr().out


def test_a_test_that_did_not_run_is_found(stock: dict[str, str]) -> None:
    """A run that ends early does not look like one without failures."""
    test = max(test for test, outcome in stock.items() if outcome == "passed")
    here = {t: outcome for t, outcome in stock.items() if t != test}
    assert comparison.differences(stock, here) == [Difference(test, "passed", "absent")]


def test_a_test_that_stock_never_ran_is_found() -> None:
    """A list that is older than the tests must be recorded anew."""
    assert comparison.differences({}, {"new": "passed"}) == [Difference("new", "absent", "passed")]


def test_failing_otherwise_is_no_difference() -> None:
    """A test that stock cannot run says nothing about Saltwall, however it ends."""
    assert comparison.differences({"t": "failed", "u": "error"}, {"t": "error"}) == []


def test_a_list_reads_back_as_it_was_written(stock: dict[str, str]) -> None:
    """Spaces in a test's parameters and a comment's lines included."""
    outcomes = stock | {"tests/test_x.py::test[a b]": "skipped"}
    text = comparison.render(outcomes, "Two\n\nparagraphs.")
    assert comparison.parse(text.splitlines()) == outcomes


def test_an_unpinned_vllm_is_refused() -> None:
    """Nothing is downloaded that no hash is committed for."""
    with pytest.raises(sdist.SdistError, match=r"0\.0\.1 is not pinned \(pinned: .*0\.32\.0"):
        sdist.pin("0.0.1")
