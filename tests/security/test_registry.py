"""All suites fit together: names, guarantees, and the manual."""

import re
from pathlib import Path

import pytest

from saltwall_security import registry
from saltwall_security.errors import AuditError
from saltwall_security.guarantees import GUARANTEES
from saltwall_security.suite import Suite

README = Path(__file__).parents[2] / "security" / "README.md"


@pytest.fixture(scope="module")
def suites() -> list[Suite]:
    """Every suite."""
    return registry.load()


def test_each_suite_is_called_as_it_is_listed(suites: list[Suite]) -> None:
    """The name that is typed is the one in reports."""
    assert [suite.name for suite in suites] == list(registry.MODULES)


def test_each_guarantee_is_attacked(suites: list[Suite]) -> None:
    """And no suite is about one that does not exist."""
    attacked = {guarantee for suite in suites for guarantee in suite.guarantees}
    assert attacked == set(GUARANTEES)


def test_the_manual_says_which_suites_attack_which_guarantee(suites: list[Suite]) -> None:
    """A row a guarantee, as in the code."""
    rows = re.findall(r"^\| (G\d+) \| (.+?) \| (.+?) \|$", README.read_text(), re.M)
    told = {name: (claim, where) for name, claim, where in rows}
    assert told == {
        name: (claim, ", ".join(suite.name for suite in suites if name in suite.guarantees))
        for name, claim in GUARANTEES.items()
    }


def test_suites_are_chosen_by_name_in_their_own_order() -> None:
    """Secrecy searches what the others have left, so it is last."""
    chosen = registry.load(["secrecy", "isolation"])
    assert [suite.name for suite in chosen] == ["isolation", "secrecy"]
    with pytest.raises(AuditError, match="no suite is called 'nonsense': choose from isolation"):
        registry.load(["nonsense"])
