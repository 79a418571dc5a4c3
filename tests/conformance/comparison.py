"""Compares the outcomes of vLLM's tests with the committed list of stock vLLM's."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

Outcomes = Mapping[str, str]  # by test: passed, failed, error, skipped or xfailed


class Difference(NamedTuple):
    """A test that ends otherwise than on stock; `absent` where it did not run."""

    test: str
    stock: str
    here: str

    def __str__(self) -> str:
        return f"{self.test}: {self.stock} on stock, {self.here} here"


def parse(lines: Iterable[str]) -> dict[str, str]:
    """Reads a list: an outcome and a test a line, comments after #."""
    outcomes = {}
    for line in lines:
        if line.strip() and not line.startswith("#"):
            outcome, test = line.rstrip("\n").split(" ", 1)
            outcomes[test] = outcome
    return outcomes


def render(outcomes: Outcomes, comment: str) -> str:
    """Writes a list that `parse` reads, sorted, so that a change shows line by line."""
    head = [f"# {line}".rstrip() for line in comment.splitlines()]
    return "\n".join([*head, *sorted(f"{outcomes[test]} {test}" for test in outcomes)]) + "\n"


def differences(stock: Outcomes, here: Outcomes) -> list[Difference]:
    """Tests that pass on one side only.

    How a test fails is no difference: those that fail on stock lack a model or a package.
    """
    found = [
        Difference(test, stock.get(test, "absent"), here.get(test, "absent"))
        for test in sorted({*stock, *here})
    ]
    return [d for d in found if (d.stock == "passed") != (d.here == "passed")]
