"""How many prefill tokens a step may compute while more than one tenant has work.

A request waits at least for the step in flight, so a step's length is what a flood of long prompts
costs everybody else. The operator gives the length; this module learns what a token costs here.
"""

import time
from collections.abc import Callable
from copy import copy
from math import inf

from saltwall_engine.ledger import Account

DEFAULT_STEP_MS = 100.0
_FIRST_TOKENS = 256
_ANCHOR = 0.1
"""How much the steps without prefill count in the estimate, beside those with."""
_MEMORY = 0.95
"""What is left of the weight of a step's measurement after the next one."""


class StepBudget:
    """The prefill tokens that fit a step of the target length, as far as seen.

    A step takes a fixed time and some for each token; both are estimated by least squares over the
    steps of late. Where the fixed time alone fills the target, half as much still goes to prefill.
    """

    def __init__(
        self, target_ms: float, least: int, most: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """
        Args:
            target_ms: how long a step should take at most; 0 for no bound.
            least: tokens that a step may always compute.
            most: tokens that a step can compute at all.
            clock: seconds.
        """
        self.target_ms, self.least, self.most = target_ms, least, most
        self.clock = clock
        self._last = -inf
        self._steps = 0
        # Sums over steps with prefill, of 1, tokens x and milliseconds y; one to begin with.
        x, y = float(min(_FIRST_TOKENS, most)), target_ms
        self._n, self._x, self._y, self._xx, self._xy = 1.0, x, y, x * x, x * y
        self._without_ms: float | None = None
        """What steps without prefill take: decodes alone must not wear the other sums away."""

    def _line(self) -> tuple[float, float]:
        """The estimated fixed time of a step and the time of a token (milliseconds)."""
        anchor = 0.0 if self._without_ms is None else self._n * _ANCHOR
        n = self._n + anchor
        mean_x, mean_y = self._x / n, (self._y + anchor * (self._without_ms or 0.0)) / n
        spread = self._xx / n - mean_x**2
        share = self._y / self._x
        token = (self._xy / n - mean_x * mean_y) / spread if spread > 0 else share
        token = min(max(token, share / 10), share)  # time grows with tokens, and from above zero
        return max(0.0, mean_y - token * mean_x), token

    def tokens(self) -> int:
        """Prefill tokens for the next step."""
        if not self.target_ms:
            return self.most
        base, token = self._line()
        fit = max(self.target_ms - base, min(base, self.target_ms) / 2) / token
        self._steps += 1
        if not self._steps % 4:  # steps that differ tell the two times apart, also at the least
            fit = 2 * max(fit, self.least) if fit < 2 * self.least else fit / 2
        return int(max(self.least, min(fit, self.most)))

    def observe(self, began: float, prefill: int) -> None:
        """Learns from a step that has just ended.

        Args:
            began: when it was scheduled (seconds of the clock); it may then have waited.
            prefill: the prompt tokens that it computed.
        """
        now = self.clock()
        took = (now - max(began, self._last)) * 1000
        self._last = now
        if not self.target_ms:
            return
        base, token = self._line()
        took = min(took, 3 * (base + token * prefill))  # one odd step in doubt
        if prefill < self.least:
            before = took if self._without_ms is None else self._without_ms
            self._without_ms = before + (1 - _MEMORY) * (took - before)
            return
        self._n = self._n * _MEMORY + 1
        self._x = self._x * _MEMORY + prefill
        self._y = self._y * _MEMORY + took
        self._xx = self._xx * _MEMORY + prefill * prefill
        self._xy = self._xy * _MEMORY + prefill * took


class Shares:
    """One step's prefill tokens by tenant: who has been served least takes what it can use first.

    A tenant that comes back with little to compute so has it computed in one step, and the others
    get the rest; over the steps, each is served by its weight, which is in its token counter.
    """

    def __init__(self, tokens: int, demands: dict[Account, int]) -> None:
        """
        Args:
            tokens: for the whole step.
            demands: the prefill tokens that each tenant has to compute, as far as known.
        """
        self.spare = tokens
        self.granted: dict[Account, int] = {}
        """What a tenant's next request may have to be admitted with, whatever its share is."""
        self._shares: dict[Account, int] = {}
        for account in sorted(demands, key=lambda account: (account.tokens, account.running)):
            self._shares[account] = share = min(demands[account], self.spare)
            self.spare -= share

    def copy(self) -> "Shares":
        """Shares of their own with what these have left."""
        other = copy(self)
        other._shares = dict(self._shares)
        return other

    def of(self, account: Account, admitting: bool = False) -> int:
        """What the tenant may still compute in this step.

        Args:
            admitting: for a request that does not run yet.
        """
        own = self._shares.get(account, 0) + self.spare
        return max(own, self.granted.get(account, 0)) if admitting else own

    def spend(self, account: Account, tokens: int) -> None:
        """Takes tokens that are computed for the tenant, from its own first."""
        own = self._shares.get(account, 0)
        self._shares[account] = max(0, own - tokens)
        self.spare -= max(0, tokens - own)

    def give_up(self, account: Account) -> None:
        """Leaves what the tenant cannot use to whoever comes."""
        self.spare += self._shares.pop(account, 0)

    @property
    def exhausted(self) -> bool:
        """Whether nobody has anything left."""
        return self.spare <= 0 and not any(self._shares.values())
