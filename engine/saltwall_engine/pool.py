"""vLLM's block pool, knowing whose each cached block is.

Pool objects that vLLM has built are upgraded in place (`own`), so every reference to them, from
coordinator and managers, stays valid. The salt in the hash already keeps tenants apart; the
recorded owner is checked besides, so that not even a hash collision crosses tenants.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from vllm.v1.core.block_pool import BlockPool

from saltwall_engine.salt_label import Owner, grant_of


class OwnedBlockPool(BlockPool):
    """A `BlockPool` that records the owner of each cached block and serves it to nobody else.

    All methods belong to the scheduler's thread.
    """

    owners: dict[int, Owner]
    blocks_of: dict[Owner, set[int]]
    may_cache: Callable[[Owner], bool]
    ownership_mismatches: int
    _acting: Owner | None

    @contextmanager
    def acting_for(self, request: Any) -> Iterator[None]:
        """Looks up and caches blocks on behalf of this request's tenant until the end."""
        grant = grant_of(request.cache_salt)
        before, self._acting = self._acting, None if grant is None else grant.owner
        try:
            yield
        finally:
            self._acting = before

    def get_cached_block(self, block_hash: Any, kv_cache_group_ids: list[int]) -> list[Any] | None:
        """As stock's, but another owner's block is a miss, counted in `ownership_mismatches`."""
        blocks: list[Any] | None = super().get_cached_block(block_hash, kv_cache_group_ids)
        if blocks is None:
            return None
        acting = self._acting
        if acting is None or any(self.owners.get(b.block_id) != acting for b in blocks):
            self.ownership_mismatches += 1
            return None
        return blocks

    def cache_full_blocks(self, request: Any, *args: Any, **kwargs: Any) -> None:
        """As stock's; the blocks become the request's tenant's."""
        with self.acting_for(request):
            super().cache_full_blocks(request, *args, **kwargs)

    def cache_partial_block(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """As stock's; the block becomes the request's tenant's."""
        with self.acting_for(request):
            return super().cache_partial_block(request, *args, **kwargs)

    def move_block_hashes(self, src_block: Any, dst_block: Any) -> None:
        """As stock's; the owner moves along."""
        before, self._acting = self._acting, self.owners.get(src_block.block_id)
        try:
            super().move_block_hashes(src_block, dst_block)
        finally:
            self._acting = before

    def _insert_block_hash(
        self, block_hash_with_group_id: Any, block: Any, num_tokens: Any
    ) -> None:
        owner = self._acting
        if owner is None or not self.may_cache(owner):
            return  # unknown or revoked: what is never cached is never served
        super()._insert_block_hash(block_hash_with_group_id, block, num_tokens)
        if block.block_id not in self.owners:
            self.owners[block.block_id] = owner
            self.blocks_of.setdefault(owner, set()).add(block.block_id)

    def _remove_cached_block_hashes(self, block: Any) -> Any:
        owner = self.owners.pop(block.block_id, None)
        if owner is not None:
            theirs = self.blocks_of[owner]
            theirs.discard(block.block_id)
            if not theirs:
                del self.blocks_of[owner]
        return super()._remove_cached_block_hashes(block)

    def reset_prefix_cache(self) -> bool:
        """As stock's; on success no block has an owner."""
        done = super().reset_prefix_cache()
        if done:
            self.owners.clear()
            self.blocks_of.clear()
        return done

    def purge(self, owners: Sequence[Owner], seconds: float) -> tuple[int, int]:
        """Unhashes cached blocks of these owners, also blocks in use, for at most `seconds`.

        Returns:
            The number of blocks unhashed now, and the number still to do.
        """
        deadline = time.monotonic() + seconds
        done = 0
        for owner in owners:
            while (theirs := self.blocks_of.get(owner)) and time.monotonic() < deadline:
                self.evict_blocks({next(iter(theirs))})
                done += 1
        return done, sum(len(self.blocks_of.get(owner, ())) for owner in owners)

    def check_integrity(self) -> None:
        """Raises:
        AssertionError: the owners and the hash table disagree.
        """
        hashed = {b.block_id for b in self.blocks if b.block_hash is not None}
        if hashed != set(self.owners):
            raise AssertionError(f"owners differ from hashed blocks in {hashed ^ set(self.owners)}")
        indexed = {(i, owner) for owner, ids in self.blocks_of.items() for i in ids}
        if indexed != set(self.owners.items()):
            raise AssertionError("the index of blocks by owner is stale")


def own(pool: BlockPool, may_cache: Callable[[Owner], bool]) -> OwnedBlockPool:
    """Upgrades a pool that vLLM has just built, in place.

    Args:
        pool: the pool; nothing is cached in it yet.
        may_cache: whether blocks of this owner may still become cached.
    """
    pool.__class__ = OwnedBlockPool
    pool.owners = {}
    pool.blocks_of = {}
    pool.may_cache = may_cache
    pool.ownership_mismatches = 0
    pool._acting = None
    return pool
