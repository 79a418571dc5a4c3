"""Looking at the data several times without raising the error rate."""

from collections.abc import Sequence

LOOKS = (12, 25, 50, 100, 250)
"""Numbers of pairs. The last is what "Auditing Prompt Caching in Language Model APIs" (ICML 2025)
takes without looking before; the first is the fewest that can decide at all."""


class Looks:
    """One comparison, tested each time when the next number of pairs has been reached.

    Each look gets an equal part of the error rate, so that it holds whatever the dependence between
    looks (Bonferroni); that spends it evenly, as Pocock's boundary does (Jennison and Turnbull,
    "Group Sequential Methods", 2000). Stopping because *nothing* was seen costs no error rate, and
    nor does stopping because time is up, which takes the next look early.
    """

    def __init__(self, looks: Sequence[int] = LOOKS) -> None:
        self._looks = looks
        self._seen: list[float] = []

    @property
    def next(self) -> int | None:
        """The number of pairs for the next look; None after the last."""
        return self._looks[len(self._seen)] if len(self._seen) < len(self._looks) else None

    @property
    def p(self) -> float:
        """Over all looks so far: 0.01 or less happens without an effect once in a hundred runs."""
        return min([1.0, *(p * len(self._looks) for p in self._seen)])

    def add(self, p: float) -> None:
        """Notes what a look has shown.

        Raises:
            ValueError: there was no look left.
        """
        if self.next is None:
            raise ValueError("all looks have been taken")
        self._seen.append(p)

    def level(self, alpha: float) -> float:
        """What a single look may take of an error rate."""
        return alpha / len(self._looks)
