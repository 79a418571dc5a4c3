"""What a tenant may take and which block goes, decided block by block: the contract as a model.

Written from the contract alone, by looking at every block; it shares no code with the product.

- A tenant pins a further block only while it has fewer than its ceiling pinned.
- Holding its ceiling, it replaces its own least recently used idle block.
- Else it takes a free block, and if none is left, the least recently used idle block whose owner
  still holds its reserve afterwards. (Replacing its own block leaves a tenant's share as it was,
  so below its reserve a tenant never does.)
"""

from collections.abc import Hashable, Iterable
from typing import NamedTuple

NO_CEILING = 10**9
FREE = -1
"""In place of an evicted block's name: a free block was taken."""


class Terms(NamedTuple):
    """A tenant's reserve and ceiling (blocks)."""

    reserve: int = 0
    ceiling: int = NO_CEILING


class QuotaModel:
    """The blocks of a pool by name; a block has a name while it is charged to a tenant."""

    def __init__(self, total: int, tenants: Iterable[Hashable]) -> None:
        self.total = total
        self.terms = dict.fromkeys(tenants, Terms())
        self.owner: dict[int, Hashable] = {}
        self.refs: dict[int, int] = {}
        self.cached: set[int] = set()
        self.idle: list[int] = []
        """Least recently used first."""
        self.named = 0

    def copy(self) -> "QuotaModel":
        """A model to try something on."""
        other = QuotaModel(self.total, ())
        other.terms = dict(self.terms)
        other.owner, other.refs = dict(self.owner), dict(self.refs)
        other.cached, other.idle, other.named = set(self.cached), list(self.idle), self.named
        return other

    @property
    def free(self) -> int:
        """Blocks charged to nobody."""
        return self.total - len(self.owner)

    def held(self, tenant: Hashable) -> list[int]:
        """The tenant's blocks."""
        return [name for name, owner in self.owner.items() if owner == tenant]

    def pinned(self, tenant: Hashable) -> list[int]:
        """The tenant's referenced blocks."""
        return [name for name in self.held(tenant) if self.refs[name]]

    def idle_of(self, tenant: Hashable) -> list[int]:
        """The tenant's idle blocks, least recently used first."""
        return [name for name in self.idle if self.owner[name] == tenant]

    def loses(self, name: int, to: Hashable) -> bool:
        """Whether an idle block's owner still holds its reserve after `to` has taken the block."""
        owner = self.owner[name]
        left = len(self.held(owner)) - (owner != to)
        return left >= self.terms[owner].reserve

    def next_for(self, tenant: Hashable, ceiling: int | None = None) -> int | None:
        """The block that the tenant is given next: FREE, a name to evict, or None for not now."""
        ceiling = self.terms[tenant].ceiling if ceiling is None else ceiling
        if len(self.pinned(tenant)) >= ceiling:
            return None
        if len(self.held(tenant)) >= ceiling:
            return self.idle_of(tenant)[0]
        if self.free:
            return FREE
        return next((name for name in self.idle if self.loses(name, tenant)), None)

    def allocate(
        self, tenant: Hashable, blocks: int, ceiling: int | None = None
    ) -> list[tuple[int, int]] | None:
        """Gives the tenant this many blocks, or none: None, and nothing has changed.

        Returns:
            A new name for each block, and the name of what was evicted from it, or FREE.
        """
        trial, given = self.copy(), []
        for _ in range(blocks):
            victim = trial.next_for(tenant, ceiling)
            if victim is None:
                return None
            if victim != FREE:
                trial.forget(victim)
            trial.named += 1
            trial.owner[trial.named], trial.refs[trial.named] = tenant, 1
            given.append((trial.named, victim))
        vars(self).update(vars(trial))
        return given

    def room(self, tenant: Hashable, hits: int = 0, ceiling: int | None = None) -> int:
        """The most blocks it can pin now, beginning with so many of its idle ones."""
        trial, done = self.copy(), 0
        most = self.terms[tenant].ceiling if ceiling is None else ceiling
        for name in trial.idle_of(tenant)[:hits]:
            if len(trial.pinned(tenant)) >= most:
                break
            trial.hit(name)
            done += 1
        while trial.allocate(tenant, 1, ceiling):
            done += 1
        return done

    def forget(self, name: int) -> None:
        """The block is charged to nobody any more."""
        del self.owner[name], self.refs[name]
        self.cached.discard(name)
        if name in self.idle:
            self.idle.remove(name)

    def hit(self, name: int) -> None:
        """A further request references the block."""
        self.refs[name] += 1
        if name in self.idle:
            self.idle.remove(name)

    def release(self, names: Iterable[int]) -> None:
        """One reference less to each; the cached ones without any are the most recently used."""
        touched = {}
        for name in names:
            self.refs[name] -= 1
            if not self.refs[name]:
                touched[self.owner[name]] = None
                if name in self.cached:
                    self.idle.append(name)
                else:
                    self.forget(name)
        for tenant in touched:
            self.trim(tenant)

    def cache(self, name: int) -> None:
        """The block can be found by its hash."""
        self.cached.add(name)

    def uncache(self, name: int) -> None:
        """The block cannot be found any more, and is free if nobody references it."""
        self.cached.discard(name)
        if not self.refs[name]:
            self.forget(name)

    def trim(self, tenant: Hashable) -> None:
        """Idle blocks above the ceiling go, least recently used first."""
        while len(self.held(tenant)) > self.terms[tenant].ceiling and self.idle_of(tenant):
            self.forget(self.idle_of(tenant)[0])

    def set_terms(self, tenant: Hashable, terms: Terms) -> bool:
        """Changes a tenant's terms unless the reserves would not fit into the pool."""
        others = sum(t.reserve for other, t in self.terms.items() if other != tenant)
        if others + terms.reserve > self.total:
            return False
        self.terms[tenant] = terms
        return True

    def reset(self) -> bool:
        """Everything cached is forgotten, unless something is referenced."""
        if len(self.idle) < len(self.owner):
            return False
        for name in list(self.idle):
            self.forget(name)
        return True
