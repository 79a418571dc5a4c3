"""vLLM's KV cache manager, looking up the prefix cache on behalf of one tenant at a time."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheManager

from saltwall_engine.pool import OwnedBlockPool, own
from saltwall_engine.salt_label import Owner, grant_of


class TenantKVCacheManager(KVCacheManager):
    """A `KVCacheManager` over an owned pool, counting each tenant's hit and missed tokens."""

    block_pool: OwnedBlockPool
    hit_tokens: Counter[Any]
    missed_tokens: Counter[Any]

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
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """As stock's; a request's first allocation settles how much of its prompt was cached."""
        first = request.num_computed_tokens == 0 and request.num_preemptions == 0
        with self.block_pool.acting_for(request):
            blocks = super().allocate_slots(
                request, num_new_tokens, num_new_computed_tokens, *args, **kwargs
            )
        grant = grant_of(request.cache_salt)
        if first and blocks is not None and grant is not None:
            tenant = grant.owner.tenant
            self.hit_tokens[tenant] += num_new_computed_tokens
            self.missed_tokens[tenant] += request.num_prompt_tokens - num_new_computed_tokens
        return blocks


def upgrade(manager: KVCacheManager, may_cache: Callable[[Owner], bool]) -> TenantKVCacheManager:
    """Upgrades a manager that vLLM has just built, and its pool, in place."""
    manager.__class__ = TenantKVCacheManager
    own(manager.block_pool, may_cache)
    manager.hit_tokens = Counter()
    manager.missed_tokens = Counter()
    return manager
