"""What a mutant is: one defect, where it sits, and which suite must find it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple


class Where(StrEnum):
    """The part of the product that is defective."""

    SCHEDULER = "scheduler"
    """Seen by whoever drives the scheduler class, without an engine."""
    CORE = "engine core"
    API = "engine API"
    GATEWAY = "gateway"
    COMMAND = "command line"
    WIRE = "gateway and engine"
    """What both ends agree on."""


class Patch(NamedTuple):
    """One place of the product, as "module:dotted.name", and what a mutant has there instead.

    `kind` is "call" (a function or method: `defect(original, *args)`), "get" (a data attribute of a
    class: `defect(object, value)` is what reading it gives) or "set" (`defect(object, old, new)` is
    what becomes of it).
    """

    mutant: str
    target: str
    kind: str
    defect: Callable[..., Any]


PATCHES: list[Patch] = []
MUTANTS: dict[str, "Mutant"] = {}


@dataclass(frozen=True)
class Mutant:
    """One defect.

    Args:
        name: for the command line and the table.
        defect: what is wrong, as a sentence.
        suite: the one that must find it.
        guarantee: the one that it breaks.
        taints: its traces (counted alarms, lines in a log or a table, quotas) outlive it, so that
            its suite tells nothing on the same stack any more.
    """

    name: str
    defect: str
    where: Where
    suite: str
    guarantee: str
    taints: bool = False

    def __post_init__(self) -> None:
        """Makes it known by name."""
        if self.name in MUTANTS:
            raise ValueError(f"two mutants are called {self.name}")
        MUTANTS[self.name] = self

    def replaces(self, target: str) -> Callable[[Any], Any]:
        """A decorator: this function stands for the product's, whose own is its first argument."""
        return self._patch(target, "call")

    def reads(self, target: str) -> Callable[[Any], Any]:
        """A decorator: reading this attribute of a class's objects gives what the function does."""
        return self._patch(target, "get")

    def writes(self, target: str) -> Callable[[Any], Any]:
        """A decorator: writing this attribute of a class's objects leaves what it gives."""
        return self._patch(target, "set")

    def _patch(self, target: str, kind: str) -> Callable[[Any], Any]:
        def register(defect: Callable[..., Any]) -> Callable[..., Any]:
            PATCHES.append(Patch(self.name, target, kind, defect))
            return defect

        return register
