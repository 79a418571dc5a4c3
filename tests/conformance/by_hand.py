"""A pytest plugin for those of vLLM's tests that reach past the interfaces Saltwall stands behind.

Each of these tests, and no other, gets what it needs, by name:

- some walk the linked list inside vLLM's free queue, or index its waiting queue, a deque;
- some hand free blocks to a request as its cached ones, or write into the hash table: Saltwall
  serves no block that no tenant holds, so the blocks become the tenant's just before they are used;
- some put requests into the scheduler without `add_request`;
- one has an auxiliary output, refused at boot, look up blocks on nobody's behalf, and requests that
  outgrow its pool of four blocks: Saltwall refuses what never fits;
- one makes an allocation fail that was foreseen to succeed, and looks at how vLLM then preempts in
  the middle of a step, which Saltwall does not: there, it may.
"""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import forced
import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from saltwall_engine.free_blocks import FreeBlocks
from saltwall_engine.pool import OwnedBlockPool
from saltwall_engine.waiting import TenantQueue

WALK_THE_FREE_QUEUE = {"test_prefill"}
INDEX_THE_WAITING_QUEUE = {"test_scheduler_reset_prefix_cache"}
HAND_OVER_FREE_BLOCKS = {
    "test_cache_hit_local_and_external",
    "test_cache_hit_local_and_external_three_groups",
    "test_cache_hit_local_and_external_three_groups_preempt_and_reallocate",
    "test_cache_hit_local_and_external_two_groups_preempt_and_reallocate",
    "test_evictable_cached_blocks_not_double_allocated",
}
WRITE_THE_HASH_TABLE = {
    "test_cache_blocks_multi_group",
    "test_chunked_local_attention_possible_cached_prefix",
    "test_sliding_window_cache_hit_with_finer_hash_alignment",
    "test_sliding_window_possible_cached_prefix",
}
ADD_REQUESTS_BY_HAND = {
    "test_stop_via_update_from_output",
    "test_update_from_output_routes_multi_position_sampling_masks",
    "test_update_from_output_routes_sampling_masks_by_request",
}
LOOK_UP_FOR_NOBODY = OUTGROW_THE_POOL = {
    "test_evicted_blocks_release_their_auxiliary_outputs_past_capacity"
}
FAIL_AN_ALLOCATION = {"test_allocation_retry_waits_for_fence_then_succeeds"}


@pytest.fixture(autouse=True)
def _reach_past(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    name = request.node.originalname
    if name in WALK_THE_FREE_QUEUE | HAND_OVER_FREE_BLOCKS:
        monkeypatch.setattr(FreeBlocks, "fake_free_list_head", property(_head), raising=False)
        monkeypatch.setattr(FreeBlocks, "fake_free_list_tail", property(_tail), raising=False)
    if name in INDEX_THE_WAITING_QUEUE:
        monkeypatch.setattr(TenantQueue, "__getitem__", _item, raising=False)
    if name in HAND_OVER_FREE_BLOCKS:
        monkeypatch.setattr(OwnedBlockPool, "touch", _adopting(OwnedBlockPool.touch))
    if name in WRITE_THE_HASH_TABLE:
        looking = _claiming(OwnedBlockPool.get_cached_block)
        monkeypatch.setattr(OwnedBlockPool, "get_cached_block", looking)
    if name in LOOK_UP_FOR_NOBODY:
        looking = _for_the_tenant(OwnedBlockPool.get_cached_block)
        monkeypatch.setattr(OwnedBlockPool, "get_cached_block", looking)
    for cls in forced.OURS.values():
        if name in ADD_REQUESTS_BY_HAND:
            monkeypatch.setattr(cls, "update_from_output", _arriving(cls.update_from_output))
        if name in OUTGROW_THE_POOL:
            monkeypatch.setattr(cls, "_fits_ever", lambda self, request: True)
        if name in FAIL_AN_ALLOCATION:
            stocks = Scheduler._request_blocks_can_be_freed
            monkeypatch.setattr(cls, "_request_blocks_can_be_freed", stocks)


def _item(queue: TenantQueue, index: int) -> Any:
    return list(queue)[index]


def _arriving(update: Any) -> Any:
    def wrapped(self: Any, *args: Any) -> Any:
        for request in self.requests.values():
            if not hasattr(request, "saltwall_holder"):
                self.waiting.arrive(self.kv_cache_manager.block_pool.holder_of(request).account)
        return update(self, *args)

    return wrapped


def _ends(queue: FreeBlocks) -> tuple[Any, Any]:
    """Links the free blocks as vLLM's queue does; returns what stands before and behind them."""
    head, tail = queue.__dict__.setdefault("ends", (SimpleNamespace(), SimpleNamespace()))
    blocks = [head, *queue.get_all_free_blocks(), tail]
    for before, after in pairwise(blocks[: queue.ledger.free + 2]):  # idle ones are linked already
        before.next_free_block = after
        if after is tail:
            tail.prev_free_block = before
    return head, tail


def _head(queue: FreeBlocks) -> Any:
    return _ends(queue)[0]


def _tail(queue: FreeBlocks) -> Any:
    return _ends(queue)[1]


def _adopting(touch: Any) -> Any:
    def wrapped(self: Any, blocks: Any) -> None:
        holder = self.holder(forced.GRANT.owner)
        for block in blocks:
            queue = self.free_block_queue
            if any(block is free for free in queue._free):
                queue._free.remove(block)
                self.ledger.take_free(holder.account, 1)
                self.holders[block.block_id] = holder
                queue.release(holder.account, [block], [])
        touch(self, blocks)

    return wrapped


def _claiming(get_cached_block: Any) -> Any:
    def wrapped(self: Any, block_hash: Any, kv_cache_group_ids: list[int]) -> Any:
        holder = self.holder(forced.GRANT.owner)
        self.holders = [known or holder for known in self.holders]
        self.filled_by_hand = True  # its blocks are cached, and not in the ledger
        return get_cached_block(self, block_hash, kv_cache_group_ids)

    return wrapped


def _for_the_tenant(get_cached_block: Any) -> Any:
    def wrapped(self: Any, block_hash: Any, kv_cache_group_ids: list[int]) -> Any:
        before = self.act_for(self.holder(forced.GRANT.owner))
        try:
            return get_cached_block(self, block_hash, kv_cache_group_ids)
        finally:
            self.act_for(before)

    return wrapped
