"""Who holds how many KV blocks, and who may take how many more: counting, and nothing else.

Every amount is in blocks. A block is *pinned* while a request references it, *idle* while it is
cached and unreferenced, else *free*; pinned and idle blocks are charged to one tenant:

    held = pinned + idle                            held <= ceiling
    evictable = min(idle, max(0, held - reserve))   what other tenants may take of it

Below its reserve a tenant grows only from free and from others' evictable blocks, never from its
own idle ones, so whatever it caches within its reserve stays until it chooses to replace it.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from math import inf
from typing import Any

UNLIMITED = 2**62
"""A ceiling that no pool reaches."""


class QuotaError(ValueError):
    """A quota that this pool cannot promise."""


@dataclass(frozen=True, slots=True)
class Quota:
    """One tenant's share: reserve and ceiling in blocks, weight relative to other tenants.

    `store` is whether its blocks may become cached at all.
    """

    reserve: int = 0
    ceiling: int = UNLIMITED
    weight: float = 1.0
    store: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.reserve <= self.ceiling:
            raise QuotaError(f"a ceiling of {self.ceiling} blocks is below {self.reserve} reserved")
        if not self.weight > 0:
            raise QuotaError(f"a weight of {self.weight} is not above 0")


DEFAULT_QUOTA = Quota()


class Account:
    """What one tenant holds, waits for and has been through. Only the `Ledger` moves blocks."""

    __slots__ = (
        "admitted_in",
        "cache",
        "ceiling",
        "evictable",
        "evictions_caused",
        "evictions_suffered",
        "hit_tokens",
        "idle",
        "listed",
        "live",
        "missed_tokens",
        "old_ceilings",
        "pinned",
        "preemptions_caused",
        "preemptions_suffered",
        "reserve",
        "slotted",
        "store",
        "stored",
        "tenant",
        "tokens",
        "waiting",
        "weight",
    )

    def __init__(self, tenant: Hashable, quota: Quota = DEFAULT_QUOTA) -> None:
        self.tenant = tenant
        self.pinned = self.idle = self.evictable = 0
        self.live = self.waiting = 0
        """Unfinished requests, and those of them that wait."""
        self.tokens = 0.0
        """The virtual token counter: tokens served, over the weight."""
        self.admitted_in = -inf
        """The scheduler's pass in which a request of it was admitted last."""
        self.slotted = 0
        """The step in which it was last given a slot for its share of them."""
        self.stored = 0
        """How often blocks became cached."""
        self.hit_tokens = self.missed_tokens = 0
        self.evictions_caused = self.evictions_suffered = 0
        self.preemptions_caused = self.preemptions_suffered = 0
        self.old_ceilings: dict[str, int] = {}
        """Requests admitted under a higher ceiling than today's, and that ceiling."""
        self.cache: Any = None
        self.listed = False
        """The pool's list of the idle blocks, and whether victims are sought in it."""
        self.agree(quota)

    def agree(self, quota: Quota) -> None:
        """Takes over the terms of a quota."""
        self.reserve, self.ceiling = quota.reserve, quota.ceiling
        self.weight, self.store = quota.weight, quota.store

    @property
    def held(self) -> int:
        """Blocks charged to the tenant."""
        return self.pinned + self.idle

    @property
    def running(self) -> int:
        """Requests that run."""
        return self.live - self.waiting

    @property
    def quota(self) -> Quota:
        """The terms in force."""
        return Quota(self.reserve, self.ceiling, self.weight, self.store)

    def draws(self, pins: int, hits: int = 0) -> int:
        """By how much these further pins, `hits` of them cached idle blocks, lower the supply.

        The others are the tenant's own idle blocks within its reserve, which nobody else may take.
        """
        own = max(0, self.reserve - self.pinned)
        below = max(0, self.reserve - self.pinned - self.idle)
        return min(pins - hits, below) + max(0, pins - own)


class Ledger:
    """All accounts of one pool of `total` blocks."""

    def __init__(self, total: int) -> None:
        self.total = self.free = total
        self.idle = self.evictable = self.reserved = 0
        self.ceilings = 0
        """Accounts whose ceiling is not unlimited."""
        self.accounts: dict[Hashable, Account] = {}

    def account(self, tenant: Hashable) -> Account:
        """The tenant's account; a tenant unheard of has the default quota."""
        account = self.accounts.get(tenant)
        if account is None:
            account = self.accounts[tenant] = Account(tenant)
        return account

    def set_quota(self, tenant: Hashable, quota: Quota) -> Account:
        """Changes a tenant's terms; what it holds already is not touched.

        Raises:
            QuotaError: the reserves would add up to more than the pool.
        """
        before = self.accounts.get(tenant)
        reserved = self.reserved + quota.reserve - (before.reserve if before else 0)
        if reserved > self.total:
            raise QuotaError(
                f"reserves would add up to {reserved} of {self.total} blocks, "
                f"{quota.reserve} of them for {tenant}"
            )
        account = self.account(tenant)
        self.ceilings += (quota.ceiling < UNLIMITED) - (account.ceiling < UNLIMITED)
        self.reserved = reserved
        account.agree(quota)
        self._settle(account)
        return account

    @property
    def supply(self) -> int:
        """Blocks that some tenant may take: free, or idle above their tenant's reserve."""
        return self.free + self.evictable

    def limit(self, account: Account) -> int:
        """The blocks that a request of the tenant can count on, whatever others do."""
        return min(account.ceiling, self.total - self.reserved + account.reserve)

    def allowance(self, account: Account, hits: int = 0, ceiling: int | None = None) -> int:
        """How many blocks the tenant may pin now, `hits` of them idle ones that it found cached.

        Args:
            account: the tenant's.
            hits: its own idle blocks that the pins begin with.
            ceiling: another ceiling than the account's, for a request admitted under an older one.
        """
        idle, held = account.idle, account.pinned + account.idle
        room = (account.ceiling if ceiling is None else ceiling) - held
        if room < 0:  # lowered under what it holds: only replacing is left, down to the new ceiling
            return max(0, min(idle, room + idle))
        outside = min(self.free + self.evictable - account.evictable, room)
        if held + outside < account.reserve:
            return outside + min(hits, idle)
        return outside + idle

    def take_free(self, account: Account, blocks: int) -> None:
        """Free blocks become pinned."""
        self.free -= blocks
        account.pinned += blocks
        if account.evictable != account.idle:
            self._settle(account)

    def take_idle(self, account: Account, victim: Account, blocks: int) -> None:
        """A victim's idle blocks, evicted, become the account's; it may be its own victim."""
        victim.idle -= blocks
        self.idle -= blocks
        account.pinned += blocks
        if victim is account:
            self._lower(account)
            return
        victim.evictable -= blocks
        self.evictable -= blocks
        victim.evictions_suffered += blocks
        account.evictions_caused += blocks
        if account.evictable != account.idle:
            self._settle(account)

    def pin(self, account: Account, blocks: int) -> None:
        """Idle blocks are referenced again."""
        account.idle -= blocks
        self.idle -= blocks
        account.pinned += blocks
        self._lower(account)

    def unpin(self, account: Account, idle: int, free: int) -> None:
        """Pinned blocks lost their last reference; those not cached are free."""
        account.pinned -= idle + free
        account.idle += idle
        self.idle += idle
        self.free += free
        self._settle(account)

    def discard(self, account: Account, blocks: int) -> None:
        """Idle blocks lost their hash, and are free."""
        account.idle -= blocks
        self.idle -= blocks
        self.free += blocks
        self._settle(account)

    def forget_idle(self) -> None:
        """Every idle block lost its hash, and is free."""
        for account in self.accounts.values():
            if account.idle:
                self.discard(account, account.idle)

    def _lower(self, account: Account) -> None:
        """Fewer of what the account holds are idle."""
        if account.evictable > account.idle:
            self.evictable -= account.evictable - account.idle
            account.evictable = account.idle

    def _settle(self, account: Account) -> None:
        idle = account.idle
        over = account.pinned + idle - account.reserve
        evictable = idle if over >= idle else over if over > 0 else 0
        if evictable != account.evictable:
            self.evictable += evictable - account.evictable
            account.evictable = evictable

    def check_integrity(self) -> None:
        """Raises:
        AssertionError: the accounts do not add up, or a tenant stands where none may.
        """
        accounts = self.accounts.values()
        for a in accounts:
            if min(a.pinned, a.idle, a.reserve) < 0 or self.free < 0:
                raise AssertionError(
                    f"below nothing: {a.tenant}: {a.pinned}, {a.idle}, {self.free}"
                )
            if a.evictable != min(a.idle, max(0, a.held - a.reserve)):
                raise AssertionError(f"{a.tenant}: {a.evictable} evictable of {a.idle} idle")
            ceiling = max(a.ceiling, *a.old_ceilings.values(), 0)
            if a.pinned > ceiling:
                raise AssertionError(f"{a.tenant}: {a.pinned} pinned above a ceiling of {ceiling}")
        sums = {
            "blocks": (self.total, self.free + sum(a.held for a in accounts)),
            "idle": (self.idle, sum(a.idle for a in accounts)),
            "evictable": (self.evictable, sum(a.evictable for a in accounts)),
            "reserved": (self.reserved, sum(a.reserve for a in accounts)),
            "ceilings": (self.ceilings, sum(a.ceiling < UNLIMITED for a in accounts)),
        }
        wrong = {name: pair for name, pair in sums.items() if pair[0] != pair[1]}
        if wrong or self.reserved > self.total:
            raise AssertionError(f"kept and counted differ: {wrong}; {self.reserved} reserved")
