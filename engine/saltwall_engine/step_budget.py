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
_MEMORY = 0.2
"""How much the newest step counts in what is remembered."""


class StepBudget:
    """The prefill tokens that fit a step of the target length, as far as seen."""

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
        self._base_ms = 0.0
        self._token_ms = target_ms / min(_FIRST_TOKENS, most)
        self._last = -inf

    def tokens(self) -> int:
        """Prefill tokens for the next step."""
        if not self.target_ms:
            return self.most
        fit = (self.target_ms - self._base_ms) / self._token_ms
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
        if prefill < self.least:
            self._base_ms += _MEMORY * (min(took, self.target_ms / 2) - self._base_ms)
        else:
            seen = max(took - self._base_ms, 0.1 * took) / prefill
            seen = min(max(seen, self._token_ms / 4), self._token_ms * 4)  # one odd step in doubt
            self._token_ms += _MEMORY * (seen - self._token_ms)


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
        self._shares: dict[Account, int] = {}
        for account in sorted(demands, key=lambda account: (account.tokens, account.running)):
            self._shares[account] = share = min(demands[account], self.spare)
            self.spare -= share

    def copy(self) -> "Shares":
        """Shares of their own with what these have left."""
        other = copy(self)
        other._shares = dict(self._shares)
        return other

    def of(self, account: Account) -> int:
        """What the tenant may still compute in this step."""
        return self._shares.get(account, 0) + self.spare

    def spend(self, account: Account, tokens: int) -> None:
        """Takes tokens that are computed for the tenant, from its own first."""
        own = self._shares.get(account, 0)
        self._shares[account] = max(0, own - tokens)
        self.spare -= max(0, tokens - own)

    @property
    def exhausted(self) -> bool:
        """Whether nobody has anything left."""
        return self.spare <= 0 and not any(self._shares.values())
