"""How long the property tests look: seconds in CI, as long as it takes with SALTWALL_LONG=1.

What CI finds it reports as found, with the way to reproduce it; SALTWALL_SHRINK=1 takes the minutes
to make it small.
"""

import os
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

LONG = bool(os.environ.get("SALTWALL_LONG"))
SHRINK = LONG or bool(os.environ.get("SALTWALL_SHRINK"))


def seeds(few: int, many: int) -> list[int]:
    """The seeds to try."""
    return list(range(many if LONG else few))


def effort(examples: int, many: int, steps: int = 50) -> settings:
    """Hypothesis' settings for so many examples, of so many steps if the test is stateful."""
    return settings(
        max_examples=many if LONG else examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        print_blob=True,
        phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if SHRINK else [])],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )


def run_machine(machine: Any, number: int, how: settings, least: int = 0) -> None:
    """Runs a state machine from a seed; the same seed tries the same things.

    Args:
        machine: the machine's class.
        number: the seed.
        how: how many examples, and of how many steps at most.
        least: of how many steps at least; left to itself, hypothesis stops early mostly.

    Raises:
        AssertionError: what the machine found, shrunk.
    """

    class Seeded(machine):  # type: ignore[misc]
        pass

    Seeded.__name__ = machine.__name__
    run_state_machine_as_test(seed(number)(Seeded), settings=how, _min_steps=least)
