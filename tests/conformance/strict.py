"""A pytest plugin that checks pool, ledger and queues all along, beside `forced`.

After every operation on a pool of at most 1,000 blocks, and of a scheduler after each `schedule`
and `update_from_output`, `check_integrity` must find nothing, and no alarm may have been raised. An
operation within another one is not followed by a check, since its caller is half done.
"""

from typing import Any

import forced
from vllm.v1.core.block_pool import BlockPool

from saltwall_engine.pool import OwnedBlockPool

LARGEST = 1000
OPERATIONS = (
    "cache_full_blocks",
    "cache_partial_block",
    "evict_blocks",
    "free_blocks",
    "get_cached_block",
    "get_new_blocks",
    "move_block_hashes",
    "reset_prefix_cache",
    "touch",
    "unpin_blocks",
)
STEPS = ("schedule", "update_from_output")

_inside: set[int] = set()


def _checking_pool(method: Any) -> Any:
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        if id(self) in _inside or self.num_gpu_blocks > LARGEST:
            return method(self, *args, **kwargs)
        _inside.add(id(self))
        try:
            result = method(self, *args, **kwargs)
        finally:
            _inside.discard(id(self))
        check(self)
        return result

    return wrapped


def _checking_scheduler(method: Any) -> Any:
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        if self.connector is None:
            self.check_integrity()
            assert not self.alarms
        else:  # refused at boot; with one, finished requests stay until their blocks are sent
            self.waiting.check_integrity()
            check(self.kv_cache_manager.block_pool)
        forced.counts["steps checked"] += 1
        return result

    return wrapped


def check(pool: BlockPool) -> None:
    """Checks a pool that a test has not filled by hand."""
    if isinstance(pool, OwnedBlockPool) and not getattr(pool, "filled_by_hand", False):
        pool.check_integrity()
        forced.counts["pool checks"] += 1


def pytest_configure() -> None:
    """Adds the checks to what `forced` has put in place."""
    forced.counts.update({"pool checks": 0, "steps checked": 0})
    for name in OPERATIONS:
        forced.wrap(OwnedBlockPool, name, _checking_pool)
    for cls in forced.OURS.values():
        for name in STEPS:
            forced.wrap(cls, name, _checking_scheduler)
