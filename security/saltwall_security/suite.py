"""What a suite is, and what it is given to work with."""

import random
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from types import TracebackType

from saltwall_security.check import Check
from saltwall_security.client import Client
from saltwall_security.target import Access, Target, Tenant

Say = Callable[[str], None]
SLOW = 3.0
"""A suite that takes so many times its time may be on a busy machine."""


class Audit:
    """One suite's view of the run: the target, its clients, its dice and its time."""

    def __init__(self, target: Target, seed: str, seconds: float, say: Say) -> None:
        """
        Args:
            seed: the same seed gives the same prompts, all but their first word; in the same order
                where a suite does not send several at a time.
            seconds: how long the suite may take; it should stop sampling in time, and then say
                `INCONCLUSIVE` where that was too early.
            say: takes a line of progress.
        """
        self.target, self.seed, self.seconds, self.say = target, seed, seconds, say
        self.rng = random.Random(seed)  # noqa: S311  # reproducible, and guards nothing
        # A run that is repeated from its seed must not find its own prompts cached.
        self._run = secrets.token_hex(3)
        self._deadline = time.monotonic() + seconds
        self._clients: dict[Tenant, Client] = {}

    async def __aenter__(self) -> "Audit":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for client in self._clients.values():
            await client.close()

    @property
    def left_s(self) -> float:
        """Seconds until the suite should have ended."""
        return self._deadline - time.monotonic()

    def client(self, tenant: Tenant | int) -> Client:
        """The client of a tenant, or of the target's tenant with this number."""
        who = self.target.tenants[tenant] if isinstance(tenant, int) else tenant
        if who not in self._clients:
            self._clients[who] = Client(self.target, who)
        return self._clients[who]

    def words(self, count: int, rng: random.Random | None = None) -> str:
        """Random words: no two texts share a block of tokens, and the server has seen neither.

        Args:
            rng: other dice than the suite's, for requests whose order depends on the server.
        """
        dice = rng or self.rng
        return " ".join([self._run, *(_word(dice) for _ in range(count - 1))])


def _word(dice: random.Random) -> str:
    return "".join(dice.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(5))


@dataclass(frozen=True)
class Suite:
    """A named set of checks.

    Args:
        guarantees: those that its checks are about.
        needs: without these none of its checks can be made; what only some need they ask for
            themselves, and say `NOT_TESTED`.
        share: its part of the budget, beside the others'.
        least_s: less time than this tells nothing.
        offline: it sends nothing to the target.
        patience_s: how much longer than `SLOW` times its time it may take.
        run: yields checks as they are made.
    """

    name: str
    title: str
    guarantees: tuple[str, ...]
    run: Callable[[Audit], AsyncIterator[Check]]
    needs: frozenset[Access] = frozenset()
    share: float = 1.0
    least_s: float = 5.0
    offline: bool = False
    patience_s: float = 300.0
