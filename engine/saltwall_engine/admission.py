"""Who may use this engine now: the engine core's side of the policy.

One object per EngineCore, read and written on the scheduler's thread alone, except `open`, which
the input thread calls and which touches only keys.
"""

import time
from collections import Counter
from uuid import UUID

from saltwall_engine.salt_label import Grant, Owner, SaltLabel, grant_of
from saltwall_tenants.wire import EngineKeys, Refusal, WireError, open_ticket

MAX_REQUEST_LIFETIME_S = 3600
"""How old a ticket may be here: beams, n > 1 and tool loops reuse one until their request ends."""


class Admission:
    """The authorisation section and lease that the API process pushed last."""

    def __init__(self, keys: EngineKeys) -> None:
        self._keys = keys
        self._generations: dict[UUID, frozenset[int]] = {}
        self._lease_until: float | None = None
        self.refusals: Counter[str] = Counter()

    def open(self, cache_salt: object) -> SaltLabel:
        """Opens the ticket that a request brought.

        Raises:
            WireError: it is not a genuine ticket for this engine.
        """
        _, ticket = open_ticket(
            cache_salt, self._keys.tickets, self._keys.name, max_age_s=MAX_REQUEST_LIFETIME_S
        )
        return SaltLabel(Grant.of(ticket))

    def allows(self, owner: Owner) -> bool:
        """Whether the policy names this tenant and generation; the lease does not matter."""
        return owner.generation in self._generations.get(owner.tenant, ())

    def check(self, cache_salt: object) -> None:
        """Raises:
        WireError: a request with this salt label must not be admitted now.
        """
        try:
            grant = grant_of(cache_salt)
            if grant is None:
                raise WireError(Refusal.MALFORMED, "no ticket")
            if self._lease_until is None:
                raise WireError(Refusal.NO_POLICY)
            if time.monotonic() > self._lease_until:
                raise WireError(Refusal.LEASE_EXPIRED)
            if not self.allows(grant.owner):
                raise WireError(Refusal.UNKNOWN_TENANT)
        except WireError as error:
            self.refusals[error.refusal.value] += 1
            raise

    def renew(self, seconds: float) -> None:
        """Starts the lease anew."""
        self._lease_until = time.monotonic() + seconds

    def replace(self, changes: dict[UUID, frozenset[int]]) -> set[Owner]:
        """Sets the generations of these tenants; an empty set removes one.

        Returns:
            The owners that were allowed and are no longer.
        """
        lost: set[Owner] = set()
        for tenant, generations in changes.items():
            before = self._generations.pop(tenant, frozenset())
            lost.update(Owner(tenant, g) for g in before - generations)
            if generations:
                self._generations[tenant] = generations
        return lost
