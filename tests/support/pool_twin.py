"""The real pool and the model of the contract, driven together and compared step by step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bare_core import BLOCK
from quota_model import FREE, NO_CEILING, QuotaModel, Terms

from saltwall_engine.ledger import UNLIMITED, Quota, QuotaError
from saltwall_engine.pool import OwnedBlockPool, own
from saltwall_engine.salt_label import Grant, Owner, SaltLabel

TENANTS = "abcdefgh"
LABELS = {tenant: SaltLabel(Grant(Owner(tenant, 1), tenant.encode() * 32)) for tenant in TENANTS}


@dataclass(slots=True)
class Filled:
    """As much of a request as the pool reads to cache its blocks."""

    cache_salt: SaltLabel
    block_hashes: list[Any]
    sampling_params: Any = None
    saltwall_holder: Any = None


def hash_of(tenant: str, content: int) -> bytes:
    """A block hash, as different between tenants as their salts make them."""
    return tenant.encode() + content.to_bytes(31, "big")


def new_pool(total: int) -> OwnedBlockPool:
    """vLLM's pool of so many blocks that can be held, upgraded in place."""
    from vllm.v1.core.block_pool import BlockPool

    return own(BlockPool(total + 1, True, BLOCK), lambda owner: True)


def quota(terms: Terms, store: bool = True) -> Quota:
    """The product's word for the model's terms."""
    ceiling = UNLIMITED if terms.ceiling == NO_CEILING else terms.ceiling
    return Quota(terms.reserve, ceiling, store=store)


class Twin:
    """Both, in step."""

    def __init__(self, total: int, who: Sequence[str]) -> None:
        self.model = QuotaModel(total, who)
        self.content: dict[int, int] = {}
        self.ids: dict[int, int] = {}
        """The pool's blocks by their names in the model."""
        self.log: list[tuple[Any, ...]] = []
        """What was done to the pool, with blocks by id: the way back to this state."""
        self._new_pool()

    def _new_pool(self) -> None:
        self.pool = new_pool(self.model.total)
        self.holders = {t: self.pool.holder(Owner(t, 1)) for t in self.model.terms}

    def fork(self) -> "Twin":
        """Another twin in the same state, its pool brought there by the same operations."""
        other = Twin.__new__(Twin)
        other.model, other.content = self.model.copy(), dict(self.content)
        other.log, other.ids = list(self.log), dict(self.ids)
        other._new_pool()
        for method, *arguments in self.log:
            method(other, *arguments)
        return other

    def park(self) -> None:
        """Lets the pool go, until a fork builds another."""
        del self.pool, self.holders

    def _do(self, method: Any, *arguments: Any) -> Any:
        self.log.append((method, *arguments))
        return method(self, *arguments)

    def _take(self, tenant: str, blocks: int, ceiling: int | None) -> Any:
        if ceiling is not None:  # for the integrity check: one was admitted under it
            old = self.holders[tenant].account.old_ceilings
            old["admitted"] = max(ceiling, old.get("admitted", 0))
        before = self.pool.act_for(self.holders[tenant], ceiling)
        try:
            return self.pool.get_new_blocks(blocks)
        finally:
            self.pool.act_for(before)

    def _touch(self, block: int) -> None:
        self.pool.touch([self.pool.blocks[block]])

    def _free(self, blocks: Sequence[int]) -> None:
        self.pool.free_blocks([self.pool.blocks[block] for block in blocks])

    def _cache(self, tenant: str, content: int, block: int) -> None:
        request = Filled(LABELS[tenant], [hash_of(tenant, content)])
        self.pool.cache_full_blocks(request, [self.pool.blocks[block]], 0, 1, BLOCK, 0)

    def _uncache(self, block: int) -> None:
        self.pool.evict_blocks({block})

    def _purge(self, tenant: str) -> None:
        left = 1
        while left:
            _, left = self.pool.purge([Owner(tenant, 1)], 60)

    def _trim(self, tenant: str) -> None:
        assert self.pool.trim(self.holders[tenant].account)

    def _set_quota(self, tenant: str, terms: Terms) -> None:
        account = self.holders[tenant].account
        admitted = account.pinned, account.ceiling
        self.pool.set_quota(tenant, quota(terms))
        if account.pinned > account.ceiling:  # what was admitted may finish
            account.old_ceilings["admitted"] = max(admitted)

    def _reset(self) -> bool:
        return self.pool.reset_prefix_cache()

    def allocate(self, tenant: str, blocks: int, ceiling: int | None = None) -> bool:
        """The pool gives what the model gives, evicting the same blocks in the same order."""
        expected = self.model.allocate(tenant, blocks, ceiling)
        try:
            given = self._do(Twin._take, tenant, blocks, ceiling)
        except ValueError:
            assert expected is None, f"refused {blocks} blocks to {tenant}"
            self.log.pop()
            return False
        assert expected is not None, f"gave {blocks} blocks to {tenant}"
        charged = {block: name for name, block in self.ids.items()}
        evicted = [charged.get(block.block_id, FREE) for block in given]
        assert evicted == [victim for _, victim in expected]
        for (name, victim), block in zip(expected, given, strict=True):
            assert block.ref_cnt == 1
            assert block.block_hash is None
            self.ids.pop(victim, None)
            self.ids[name] = block.block_id
        return True

    def hit(self, name: int) -> None:
        """Another request is given a block."""
        self.model.hit(name)
        self._do(Twin._touch, self.ids[name])

    def release(self, names: Sequence[int]) -> None:
        """References end, all in one call."""
        self._do(Twin._free, [self.ids[name] for name in names])
        self.model.release(names)
        self._forget_gone()

    def cache(self, name: int, content: int | None = None) -> None:
        """A block becomes cached, under a hash of its own unless told."""
        self.model.cache(name)
        self.content[name] = name if content is None else content
        owner, block = self.model.owner[name], self.ids[name]
        self._do(Twin._cache, owner, self.content[name], block)

    def serve(self, tenant: str, blocks: int) -> bool:
        """A request takes blocks, fills them and ends."""
        names = range(self.model.named + 1, self.model.named + blocks + 1)
        if not self.allocate(tenant, blocks):
            return False
        for name in names:
            self.cache(name)
        self.release(names[::-1])
        return True

    def uncache(self, name: int) -> None:
        """A block is unhashed."""
        self.model.uncache(name)
        self._do(Twin._uncache, self.ids[name])
        self._forget_gone()

    def purge(self, tenant: str) -> None:
        """Everything cached for a tenant is unhashed."""
        for name in self.model.held(tenant):
            if name in self.model.cached:
                self.model.uncache(name)
        self._do(Twin._purge, tenant)
        self._forget_gone()

    def trim(self, tenant: str) -> None:
        """A lowered ceiling is applied."""
        self.model.trim(tenant)
        self._do(Twin._trim, tenant)
        self._forget_gone()

    def set_terms(self, tenant: str, terms: Terms) -> bool:
        """Both accept a quota, or neither."""
        fits = self.model.set_terms(tenant, terms)
        try:
            self._do(Twin._set_quota, tenant, terms)
        except QuotaError:
            assert not fits
            self.log.pop()
            return False
        assert fits
        return True

    def reset(self) -> bool:
        """vLLM's reset of the prefix cache."""
        done = self._do(Twin._reset)
        assert done == self.model.reset()
        self._forget_gone()
        return bool(done)

    def _forget_gone(self) -> None:
        for name in self.ids.keys() - self.model.owner.keys():
            del self.ids[name]

    def found(self, tenant: str, content: int) -> Any:
        """The block that the tenant is served for a hash."""
        before = self.pool.act_for(self.holders[tenant])
        blocks = self.pool.get_cached_block(hash_of(tenant, content), [0])
        self.pool.act_for(before)
        return blocks[0] if blocks else None

    def check(self) -> None:
        """Both are in one state, and the pool's own books agree.

        Raises:
            AssertionError: they do not.
        """
        pool, model = self.pool, self.model
        names = {name: pool.blocks[block] for name, block in self.ids.items()}
        pool.check_integrity()
        assert {n: b.ref_cnt for n, b in names.items()} == model.refs
        assert {n for n, b in names.items() if b.block_hash is not None} == model.cached
        unreferenced = pool.free_block_queue.get_all_free_blocks()
        assert len(unreferenced) == model.free + len(model.idle)
        assert unreferenced[model.free :] == [names[name] for name in model.idle]
        for tenant, holder in self.holders.items():
            account = holder.account
            pinned, idle = model.pinned(tenant), model.idle_of(tenant)
            assert (account.pinned, account.idle) == (len(pinned), len(idle)), tenant
            evictable = 0
            for _ in idle:  # those that a stranger could take, one after another
                evictable += len(pinned) + len(idle) - evictable > model.terms[tenant].reserve
            assert account.evictable == evictable
            cached = {self.content[name] for name in model.cached if model.owner[name] == tenant}
            for content in {self.content[name] for name in model.cached}:
                assert (self.found(tenant, content) is not None) == (content in cached)

    def check_room(self, tenant: str, hits: int = 0, ceiling: int | None = None) -> None:
        """The pool promises the tenant exactly the pins that the model can carry out.

        Raises:
            AssertionError: more, or fewer.
        """
        before = self.pool.act_for(self.holders[tenant], ceiling, hits)
        promised = self.pool.get_num_free_blocks()
        self.pool.act_for(before)
        assert promised == self.model.room(tenant, hits, ceiling), (tenant, hits, ceiling)
