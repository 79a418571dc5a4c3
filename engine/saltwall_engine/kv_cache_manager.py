"""vLLM's KV cache manager, looking up and allocating on behalf of one tenant at a time."""

from collections.abc import Callable
from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheManager

from saltwall_engine.pool import OwnedBlockPool, own
from saltwall_engine.salt_label import Owner


class TenantKVCacheManager(KVCacheManager):
    """A `KVCacheManager` over an owned pool, counting each tenant's hit and missed tokens."""

    block_pool: OwnedBlockPool

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
        pool = self.block_pool
        holder = pool.holder_of(request)
        account = holder.account
        first = request.num_computed_tokens == 0 and request.num_preemptions == 0
        before = pool.act_for(
            holder,
            account.old_ceilings.get(request.request_id) if account.old_ceilings else None,
            new_computed_blocks.blocks if new_computed_blocks is not None else (),
        )
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
        if first and blocks is not None:
            account.hit_tokens += num_new_computed_tokens
            account.missed_tokens += request.num_prompt_tokens - num_new_computed_tokens
        return blocks


def upgrade(manager: KVCacheManager, may_cache: Callable[[Owner], bool]) -> TenantKVCacheManager:
    """Upgrades a manager that vLLM has just built, and its pool, in place."""
    manager.__class__ = TenantKVCacheManager
    own(manager.block_pool, may_cache)
    return manager
