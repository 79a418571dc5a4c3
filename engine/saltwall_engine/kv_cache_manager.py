"""vLLM's KV cache manager, looking up and allocating on behalf of one tenant at a time."""

from collections.abc import Callable, Sequence
from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager

from saltwall_engine.pool import OwnedBlockPool, own
from saltwall_engine.salt_label import Owner

_RUNNING_ARGUMENTS = {"num_lookahead_tokens"}
"""What vLLM passes besides for a running request."""


class TenantKVCacheManager(KVCacheManager):
    """A `KVCacheManager` over an owned pool, counting each tenant's hit and missed tokens."""

    block_pool: OwnedBlockPool
    unmet: Any
    """The last request that got no blocks."""
    _plain: Any

    def idle_hits(self, found: Sequence[Sequence[Any]], computed: int) -> int:
        """How many idle blocks are pinned when a request adopts the blocks it found cached.

        Args:
            found: the cached blocks, by KV cache group.
            computed: the tokens that they hold.
        """
        hits = 0
        for manager, blocks in zip(self.coordinator.single_type_managers, found, strict=False):
            skipped = manager.get_num_skipped_tokens(computed) // manager.block_size
            hits += sum(b.ref_cnt == 0 and not b.is_null for b in blocks[skipped:])
        return hits

    def get_computed_blocks(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """As stock's, for the request's tenant alone."""
        with self.block_pool.acting_for(request):
            return super().get_computed_blocks(request, *args, **kwargs)

    def get_computed_blocks_for_connector(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """As stock's, for the request's tenant alone."""
        with self.block_pool.acting_for(request):
            return super().get_computed_blocks_for_connector(request, *args, **kwargs)

    def allocate_slots(
        self,
        request: Any,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """As stock's, within the tenant's quota.

        A request's first allocation settles how much of its prompt was cached.
        """
        running = new_computed_blocks is None and not args and kwargs.keys() <= _RUNNING_ARGUMENTS
        if running and self._stays(request, num_new_tokens + kwargs.get("num_lookahead_tokens", 0)):
            return self.empty_kv_cache_blocks
        pool = self.block_pool
        holder = pool.holder_of(request)
        account = holder.account
        first = request.num_computed_tokens == 0 and request.num_preemptions == 0
        hits = 0
        if new_computed_blocks is not None and account.held < account.reserve:
            hits = self.idle_hits(new_computed_blocks.blocks, num_new_computed_tokens)
        before = pool.act_for(holder, account.old_ceilings.get(request.request_id), hits)
        try:
            blocks = super().allocate_slots(
                request,
                num_new_tokens,
                num_new_computed_tokens,
                new_computed_blocks,
                *args,
                **kwargs,
            )
        finally:
            pool.act_for(before)
        if blocks is None:
            self.unmet = request
        elif first:
            account.hit_tokens += num_new_computed_tokens
            account.missed_tokens += request.num_prompt_tokens - num_new_computed_tokens
        return blocks

    def _stays(self, request: Any, new: int) -> bool:
        """Whether a running request neither needs a block nor fills one with its next tokens.

        What vLLM does then, with a single group of full attention, has no effect but this answer.
        """
        plain = self._plain
        if plain is None:
            return False
        request_id = request.request_id
        cached = plain.num_cached_block.get(request_id)
        if cached is None:
            return False
        end = request.num_computed_tokens + new
        size = plain.block_size
        return end // size <= cached and end <= size * len(plain.req_to_blocks[request_id])


def _plain(manager: KVCacheManager) -> Any:
    """The only KV cache group's manager, if it is one of full attention with whole-block hashes."""
    managers = manager.coordinator.single_type_managers
    only = managers[0]
    whole = only.block_size == manager.block_pool.hash_block_size
    return only if len(managers) == 1 and type(only) is FullAttentionManager and whole else None


def upgrade(manager: KVCacheManager, may_cache: Callable[[Owner], bool]) -> TenantKVCacheManager:
    """Upgrades a manager that vLLM has just built, and its pool, in place."""
    manager.__class__ = TenantKVCacheManager
    own(manager.block_pool, may_cache)
    manager.unmet = None
    manager._plain = _plain(manager)
    return manager
