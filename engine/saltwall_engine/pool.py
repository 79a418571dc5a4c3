"""vLLM's block pool, charging each block to a tenant and serving it to nobody else.

Pool objects that vLLM has built are upgraded in place (`own`), so every reference to them, from
coordinator and managers, stays valid. The salt in the hash already keeps tenants apart; the
recorded holder is checked besides, so that not even a hash collision crosses tenants.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from vllm.v1.core.block_pool import BlockPool

from saltwall_engine.free_blocks import FreeBlocks
from saltwall_engine.ledger import Account, Ledger, Quota
from saltwall_engine.remains import Remains
from saltwall_engine.salt_label import Owner, grant_of

NO_STORE = "saltwall_no_store"
"""The sampling parameter (`vllm_xargs`) of a request whose blocks must not become cached."""

_LOOKS_PER_CLOCK = 64


class Holder:
    """Whose blocks are: one generation of one tenant, and the account they are charged to."""

    __slots__ = ("account", "owner")

    def __init__(self, owner: Owner | None, account: Account) -> None:
        self.owner = owner
        self.account = account


class OwnedBlockPool(BlockPool):
    """A `BlockPool` in which a tenant takes what its quota allows and finds only its own blocks.

    All methods belong to the scheduler's thread.
    """

    ledger: Ledger
    free_block_queue: FreeBlocks
    holders: list[Holder | None]
    """By block: who holds it, or held it last; None if nobody has since it was overwritten."""
    remains: Remains
    may_cache: Callable[[Owner], bool]
    ownership_mismatches: int
    _known: dict[Owner, Holder]
    _nobody: Holder
    _holder: Holder | None
    _ceiling: int | None
    _hits: int
    _purging: dict[frozenset[Owner], int]

    def holder_of(self, request: Any) -> Holder:
        """The holder for a request; one without a grant has a ceiling of nothing."""
        holder: Holder | None = getattr(request, "saltwall_holder", None)
        if holder is None:
            grant = grant_of(request.cache_salt)
            holder = self._nobody if grant is None else self.holder(grant.owner)
            request.saltwall_holder = holder
        return holder

    def holder(self, owner: Owner) -> Holder:
        """The one holder object for an owner."""
        holder = self._known.get(owner)
        if holder is None:
            holder = self._known[owner] = Holder(owner, self.ledger.account(owner.tenant))
        return holder

    def act_for(
        self, holder: Holder | None, ceiling: int | None = None, hits: int = 0
    ) -> Holder | None:
        """Looks up, allocates and counts for this holder from now on; returns the one before.

        Args:
            holder: whose tenant's share to answer and to charge; None for the pool as a whole.
            ceiling: its tenant's, if not the account's (blocks).
            hits: the idle blocks that the allocation to come has found cached.
        """
        before, self._holder = self._holder, holder
        self._ceiling, self._hits = ceiling, hits
        return before

    @contextmanager
    def acting_for(self, request: Any) -> Iterator[None]:
        """Looks up, allocates and caches on behalf of this request's tenant until the end."""
        before = self.act_for(self.holder_of(request))
        try:
            yield
        finally:
            self.act_for(before)

    def get_num_free_blocks(self) -> int:
        """The blocks that the acting tenant may take now; those of the whole pool for nobody."""
        holder = self._holder
        if holder is None:
            return self.free_block_queue.num_free_blocks
        return self.ledger.allowance(holder.account, self._hits, self._ceiling)

    def get_cached_block(self, block_hash: Any, kv_cache_group_ids: list[int]) -> list[Any] | None:
        """As stock's, but another holder's block is a miss, counted in `ownership_mismatches`."""
        blocks: list[Any] | None = super().get_cached_block(block_hash, kv_cache_group_ids)
        if blocks is None:
            return None
        holder, holders = self._holder, self.holders
        for block in blocks:
            if holder is None or holders[block.block_id] is not holder:
                self.ownership_mismatches += 1
                return None
        return blocks

    def cache_full_blocks(self, request: Any, *args: Any, **kwargs: Any) -> None:
        """As stock's, unless the tenant or the request does not store, or the tenant is revoked."""
        if self._stores(request):
            super().cache_full_blocks(request, *args, **kwargs)
            self.holder_of(request).account.stored += 1

    def cache_partial_block(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """As stock's, with the same exceptions."""
        return (
            super().cache_partial_block(request, *args, **kwargs) if self._stores(request) else None
        )

    def _stores(self, request: Any) -> bool:
        holder = self.holder_of(request)
        if holder.owner is None or not holder.account.store or not self.may_cache(holder.owner):
            return False
        options = getattr(request.sampling_params, "extra_args", None)
        return not (options and options.get(NO_STORE))

    def move_block_hashes(self, src_block: Any, dst_block: Any) -> None:
        """As stock's, between blocks of one holder that may still cache; else they are unhashed."""
        holder = self.holders[src_block.block_id]
        same = holder is not None and holder is self.holders[dst_block.block_id]
        if same and holder.owner is not None and self.may_cache(holder.owner):
            super().move_block_hashes(src_block, dst_block)
        else:
            self._maybe_evict_cached_block(src_block)

    def get_new_blocks(self, num_blocks: int) -> list[Any]:
        """As stock's, for the acting tenant, within its quota.

        Raises:
            ValueError: nobody is acting, or it is more than the tenant may take.
        """
        holder = self._holder
        if holder is None:
            raise ValueError("blocks are taken for a tenant, and none is acting")
        account = holder.account
        ceiling = account.ceiling if self._ceiling is None else self._ceiling
        ledger, unreferenced = self.ledger, self.free_block_queue
        room = ceiling - account.pinned - account.idle
        if num_blocks <= ledger.free and num_blocks <= room:
            blocks = unreferenced.take_free(account, num_blocks)
        elif num_blocks == 1 <= room and ledger.evictable and not ledger.free:
            blocks = [unreferenced.take_one(account)]
            self._unhash(blocks)
        elif num_blocks > ledger.allowance(account, 0, ceiling):
            raise ValueError(f"Cannot get {num_blocks} free blocks from the pool for this tenant")
        else:
            blocks, fresh = unreferenced.take(account, num_blocks, ceiling)
            self._unhash(blocks[fresh:] if fresh else blocks)
        if self._reuse_watchers:
            self._notify_reuse(blocks)
        holders = self.holders
        if self.remains.purged:
            self.remains.taken(blocks, holders)
        for block in blocks:
            block.ref_cnt = 1
            holders[block.block_id] = holder
        if self.metrics_collector:
            for block in blocks:
                self.metrics_collector.on_block_allocated(block)
        return blocks

    def _unhash(self, evicted: list[Any]) -> None:
        """Removes blocks that have been taken from the hash table."""
        if (
            self.cached_block_hashes_by_block
            or self.metrics_collector
            or self.enable_kv_cache_events
        ):
            for block in evicted:
                self._maybe_evict_cached_block(block)
            return
        table = self.cached_block_hash_to_block._cache
        for block in evicted:
            key = block._block_hash
            found = table.pop(key, None)
            if found is block:
                block._block_hash = block._block_hash_num_tokens = None
            elif found is not None:  # several blocks have this hash
                table[key] = found
                self._maybe_evict_cached_block(block)

    def touch(self, blocks: Sequence[Any]) -> None:
        """As stock's; idle blocks become pinned."""
        idle = [block for block in blocks if block.ref_cnt == 0 and not block.is_null]
        for account, theirs in self._by_account(idle):
            self.free_block_queue.pin(account, theirs)
        for block in blocks:
            if block.is_null:  # never pooled, so nobody counts its references
                continue
            block.ref_cnt += 1
            if self.metrics_collector:
                self.metrics_collector.on_block_accessed(block)

    def _by_account(self, blocks: list[Any]) -> Iterable[tuple[Account, list[Any]]]:
        """Held blocks by the account they are charged to."""
        groups: dict[Account, list[Any]] = {}
        for block in blocks:
            groups.setdefault(self.holders[block.block_id].account, []).append(block)
        return groups.items()

    def free_blocks(self, ordered_blocks: Iterable[Any]) -> None:
        """As stock's; blocks that nobody references become idle if cached, else free."""
        holders = self.holders
        if self.remains.when_freed:
            ordered_blocks = list(ordered_blocks)
        idle: list[Any] = []
        free: list[Any] = []
        others: list[Any] = []
        accounts: list[Account] = []
        whose: Holder | None = None
        for block in ordered_blocks:
            if block.is_null:
                continue
            pool = block.pool
            if pool is not self and pool is not None:
                others.append(block)
                continue
            block.ref_cnt = references = block.ref_cnt - 1
            if references == 0:
                holder = holders[block.block_id]
                if holder is not whose:
                    if whose is not None:
                        self.free_block_queue.release(whose.account, idle, free)
                        idle, free = [], []
                    whose = holder
                    accounts.append(holder.account)
                if block._block_hash is None:
                    free.append(block)
                else:
                    idle.append(block)
        if whose is not None:
            self.free_block_queue.release(whose.account, idle, free)
        for account in accounts:  # when all are released: what it holds meanwhile is not more
            if account.pinned + account.idle > account.ceiling:
                self.trim(account)
        for block in others:
            block.pool.free_blocks([block])
        if self.remains.when_freed:
            self.remains.freed(ordered_blocks, holders)

    def unpin_blocks(self, blocks: Iterable[Any], on_reuse: Callable[[Any], None]) -> None:
        """As stock's; the blocks stay charged, as idle ones, until they are reused."""
        released = []
        for block in blocks:
            block.ref_cnt -= 1
            self._reuse_watchers[block.block_id] = on_reuse
            if block.ref_cnt == 0:
                released.append(block)
        for account, theirs in self._by_account(released):
            self.free_block_queue.release(account, theirs, [])

    def trim(self, account: Account, most: int | None = None) -> bool:
        """Evicts the tenant's own idle blocks while it holds more than its ceiling.

        Returns:
            Whether it is done; not if more than `most` blocks would have had to go.
        """
        while account.pinned + account.idle > account.ceiling and account.idle:
            if most is not None:
                if most == 0:
                    return False
                most -= 1
            if not self._maybe_evict_cached_block(self.free_block_queue.oldest(account)):
                break  # unpinned and still read: it goes when it is reused
        return True

    def set_quota(self, tenant: Any, quota: Quota) -> Account:
        """Changes a tenant's terms; `trim` brings what it holds under a lowered ceiling.

        Raises:
            QuotaError: the reserves would add up to more than the pool.
        """
        account = self.ledger.set_quota(tenant, quota)
        self.free_block_queue.settle(account)
        return account

    def _remove_cached_block_hashes(self, block: Any) -> Any:
        hashes = super()._remove_cached_block_hashes(block)
        if hashes and block.ref_cnt == 0 and block.next_free_block is not None:
            holder = self.holders[block.block_id]
            if holder is not None and block.block_id not in self._reuse_watchers:
                self.free_block_queue.discard(holder.account, block)
        return hashes

    def reset_prefix_cache(self) -> bool:
        """As stock's; on success nothing is held."""
        before = self.act_for(None)
        try:
            if not super().reset_prefix_cache():
                return False
        finally:
            self.act_for(before)
        self.free_block_queue.discard_all()
        return True

    def owners(self) -> set[Owner]:
        """Whose blocks are in the pool, as far as it remembers."""
        return set(self._known)

    def purge(self, owners: Sequence[Owner], seconds: float) -> tuple[int, int]:
        """Unhashes cached blocks of these owners, also blocks in use, for at most `seconds`.

        What is left in the pool of what they computed is due in `remains`.

        Returns:
            The number of blocks unhashed now, and of those not looked at yet: call again.
        """
        deadline = time.monotonic() + seconds
        whose = frozenset(owners)
        remains = self.remains
        remains.begin(whose)
        holders = {self._known[owner] for owner in whose if owner in self._known}
        at = self._purging.pop(whose, 1) if holders else self.num_gpu_blocks
        done = 0
        while at < self.num_gpu_blocks and (at % _LOOKS_PER_CLOCK or time.monotonic() < deadline):
            block = self.blocks[at]
            theirs = self.holders[at] in holders
            if theirs and block.block_hash is not None:
                self._maybe_evict_cached_block(block)
                done += 1
            if remains.batch and block.block_hash is None and at not in self._reuse_watchers:
                remains.look(block, self.holders, theirs)
            at += 1
            if remains.full:
                break
        if at < self.num_gpu_blocks:
            self._purging[whose] = at
        else:
            remains.end(whose)
        return done, self.num_gpu_blocks - at

    def check_integrity(self) -> None:
        """Raises:
        AssertionError: blocks, holders, lists and ledger disagree.
        """
        self.ledger.check_integrity()
        self.free_block_queue.check_integrity()
        pinned: dict[Account, int] = {}
        idle: dict[Account, int] = {}
        for block in self.blocks:
            holder = self.holders[block.block_id]
            if block.is_null:
                continue
            cached = block.block_hash is not None or block.block_id in self._reuse_watchers
            if block.ref_cnt > 0 or cached:
                if holder is None:
                    raise AssertionError(f"block {block.block_id} is held by nobody")
                count = pinned if block.ref_cnt else idle
                count[holder.account] = count.get(holder.account, 0) + 1
        for account in self.ledger.accounts.values():
            counted = pinned.get(account, 0), idle.get(account, 0)
            if counted != (account.pinned, account.idle):
                raise AssertionError(f"{account.tenant}: {counted} counted, kept {account.held}")
        free = self.free_block_queue.get_all_free_blocks()
        if {b.block_id for b in free} != {
            b.block_id for b in self.blocks if not (b.ref_cnt or b.is_null)
        }:
            raise AssertionError("the free blocks are not the unreferenced ones")


def own(pool: BlockPool, may_cache: Callable[[Owner], bool]) -> OwnedBlockPool:
    """Upgrades a pool that vLLM has just built, in place.

    Args:
        pool: the pool; nothing is cached in it yet.
        may_cache: whether blocks of this owner may still become cached.
    """
    free = pool.free_block_queue.get_all_free_blocks()
    for block in free:
        block.prev_free_block = block.next_free_block = None
    pool.__class__ = OwnedBlockPool
    pool.ledger = Ledger(len(free))
    pool.free_block_queue = FreeBlocks(free, pool.num_gpu_blocks, pool.ledger)
    pool.holders = [None] * pool.num_gpu_blocks
    pool.remains = Remains()
    pool.may_cache = may_cache
    pool.ownership_mismatches = 0
    pool._known = {}
    pool._nobody = Holder(None, Account(None, Quota(ceiling=0)))
    pool._purging = {}
    pool._holder = pool._ceiling = None
    pool._hits = 0
    return pool
