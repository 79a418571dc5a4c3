"""The page: all in one file, nothing runs in it, and a reader finds the verdicts and the proof."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from made_reports import CHECK, ended, made, mixed, suite

from saltwall_security.check import Verdict
from saltwall_security.report.page import page

VOID = {"meta", "br", "link", "img", "path", "use"}


class Seen(HTMLParser):
    """The elements of a page, and the text in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes it."""
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Each closes what is open."""
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Notes it."""
        self.text += data


@pytest.fixture(scope="module")
def seen() -> Seen:
    """The page of a report with everything in it."""
    return Seen(page(mixed()))


def test_the_page_needs_nothing_from_elsewhere_and_runs_nothing(seen: Seen) -> None:
    """No script, no handler, no address but its own places."""
    tags = {tag for tag, _ in seen.elements}
    assert not tags & {"script", "link", "img", "iframe", "object"}
    for _, attributes in seen.elements:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("href", "src", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
    assert "url(http" not in page(mixed())
    assert "@import" not in page(mixed())


def test_the_page_is_well_formed(seen: Seen) -> None:
    """Each element that is opened is closed, in order, and no id is there twice."""
    assert not seen.open
    ids = [attributes["id"] for _, attributes in seen.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_the_conclusion_is_first(seen: Seen) -> None:
    """With how much was tested, before anything that needs knowledge."""
    assert seen.text.index("Could not tell") < seen.text.index("no tenant ever hits")
    assert "2 of 12 guarantees were tested" in seen.text


def test_the_baseline_is_beside_each_guarantee_and_check(seen: Seen) -> None:
    """A column of its own, and its evidence next to ours."""
    row = next(line for line in seen.text.split("\nG") if line.startswith("2\n"))
    assert row.split("1 ")[0].split()[-1] == "held"
    assert "failed" in row
    assert "Stock failed" in seen.text


def test_an_engineer_finds_what_to_check_it_with(seen: Seen) -> None:
    """Figures, controls, tables, seed, and the command that repeats it."""
    for wanted in ("0.51", "AUC 0.99", "requests", "5eed", "saltwall audit run --seed 5eed"):
        assert wanted in seen.text


def test_each_plot_is_drawn_in_the_colours_of_the_page(seen: Seen) -> None:
    """Which are others in the dark."""
    drawn = [attributes for tag, attributes in seen.elements if tag == "svg"]
    assert len(drawn) == 3
    assert drawn[0]["aria-label"] == "Time to first token <all>"
    text = page(mixed())
    assert "var(--series-2)" in text
    assert "prefers-color-scheme: dark" in text
    assert not set(re.findall(r"#0[0-9a-f]{5}\b", text)) - {"#0969da", "#0d1117"}


def test_what_was_seen_is_text(seen: Seen) -> None:
    """A server's answer cannot put anything into the page."""
    hostile = "<script>alert(1)</script>"
    check = replace(CHECK, seen=hostile, claim=hostile, figures={hostile: hostile}, control=hostile)
    found = Seen(page(made(suite("timing", check), label=hostile)))
    assert "script" not in {tag for tag, _ in found.elements}
    assert found.text.count(hostile) >= 5


def test_the_same_report_makes_the_same_page() -> None:
    """Reports that are kept can be compared."""
    assert page(mixed()) == page(mixed())


def test_what_to_do_is_said_where_something_is_to_be_done() -> None:
    """Not where it held."""
    assert "Salt the cache" not in page(made(suite("timing", CHECK)))
    assert "Salt the cache" in page(made(suite("timing", ended(Verdict.FAILED))))
