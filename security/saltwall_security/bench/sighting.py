"""What an attack on the bench saw."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from saltwall_security.bench.bench import Bench
from saltwall_security.bench.engine import BLOCK, VOCABULARY


@dataclass(frozen=True)
class Sighting:
    """How one attack on one scheduler ended.

    Args:
        leak: whether it saw what must not be.
        seen: what it saw, with numbers, after "The attack on ... ".
        figures: numbers by name, with units in the names.
        control: whether it would have seen it. False where what it needs did not come about, or
            where it does not see what is there to be seen on the same scheduler; None where only
            another scheduler can tell.
        applies: whether the scheduler has what is attacked.
    """

    leak: bool
    seen: str
    figures: Mapping[str, float | int] = field(default_factory=dict)
    control: bool | None = None
    applies: bool = True


Attack = Callable[[Bench, random.Random, bool], Sighting]
"""Takes the bench, the dice, and whether to schedule asynchronously."""

NOT_APPLICABLE = Sighting(False, "knows no tenants", applies=False)


class Prompts:
    """Prompts that nobody has sent yet."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def fresh(self, blocks: int, more: int = 4) -> list[int]:
        """So many whole blocks and some tokens more, all random."""
        return [self._rng.randrange(1, VOCABULARY) for _ in range(blocks * BLOCK + more)]
