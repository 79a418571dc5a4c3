"""Paired measurement: stock, Saltwall, and stock once more in turn, so that noise is seen beside.

Times are CPU seconds of the measuring thread: what else the machine does costs the clock on the
wall, but not this one. Python's garbage collector is off meanwhile, for both alike.
"""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle, permutations
from statistics import median, quantiles
from typing import Any, NamedTuple

Side = Callable[[], Mapping[str, float]]
"""Does one round's work; returns what it measured, by name."""


class Series(NamedTuple):
    """What one quantity was in each round."""

    stock: list[float]
    saltwall: list[float]
    again: list[float]


@dataclass(frozen=True)
class Ratio:
    """A median of ratios, and half the range between their quartiles."""

    median: float
    spread: float

    @classmethod
    def of(cls, above: list[float], below: list[float]) -> "Ratio":
        """Of measurements that were taken in pairs."""
        ratios = [a / b for a, b in zip(above, below, strict=True)]
        low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        return cls(median(ratios), (high - low) / 2)

    def __str__(self) -> str:
        return f"{self.median:.2f} ±{self.spread:.2f}"


@dataclass(frozen=True)
class Outcome:
    """One line of the result.

    `stock` and `saltwall` are medians in `unit`; `ratio` is Saltwall's over stock's, `noise` is
    stock's over stock's. The ratio should be at most `goal`, or at least, where more is better.
    """

    subject: str
    case: str
    unit: str
    stock: float
    saltwall: float
    ratio: Ratio | None = None
    noise: Ratio | None = None
    goal: float | None = None
    more_is_better: bool = False

    @classmethod
    def of(cls, subject: str, case: str, unit: str, series: Series, **goal: Any) -> "Outcome":
        """What the rounds amount to."""
        return cls(
            subject,
            case,
            unit,
            median(series.stock),
            median(series.saltwall),
            Ratio.of(series.saltwall, series.stock),
            Ratio.of(series.again, series.stock),
            **goal,
        )

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without a goal."""
        if self.goal is None or self.ratio is None:
            return None
        reached = self.ratio.median
        return reached >= self.goal if self.more_is_better else reached <= self.goal

    def json(self) -> dict[str, Any]:
        """Every figure."""
        return asdict(self) | {"met": self.met}


class Stopwatch:
    """Sums up the CPU seconds of this thread within `with` blocks."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._began = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.thread_time() - self._began


@contextmanager
def without_collector() -> Iterator[None]:
    """Collects garbage now, and none until the end of the block."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def measure(stock: Side, saltwall: Side, again: Side, rounds: int) -> dict[str, Series]:
    """Runs the three sides so many times, in each order in turn, after a round to warm up."""
    sides = {"stock": stock, "saltwall": saltwall, "again": again}
    for side in sides.values():
        side()
    series: dict[str, Series] = {}
    with without_collector():
        for _, order in zip(range(rounds), cycle(permutations(sides)), strict=False):
            for name in order:
                for quantity, value in sides[name]().items():
                    kept = series.setdefault(quantity, Series([], [], []))
                    getattr(kept, name).append(value)
    return series
