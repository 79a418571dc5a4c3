"""Replays a workload through block pools, calling them as vLLM's KV cache manager does."""

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

from mooncake import BLOCK, Call
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import KVCacheBlock
from vllm.v1.request import Request
from workload import Workload, tenant_id

from saltwall_engine.pool import OwnedBlockPool

ServiceTime = Callable[[Call, int], float]  # (request, cached tokens) -> seconds in the pool
Progress = Callable[[], None]


def at_once(call: Call, cached: int) -> float:
    """Requests never overlap: each is over before the next comes."""
    return 0.0


def overlapping(call: Call, cached: int) -> float:
    """A request computes 10,000 prompt tokens and then writes 1 / 0.03 tokens a second."""
    return (call.input_length - cached) / 10_000 + call.output_length * 0.03


@dataclass
class Shelf:
    """A pool, the largest request it takes of each tenant, and who waits for room in it.

    Stock vLLM's queue is one, whose head holds up all others; Saltwall's is one a tenant.
    """

    pool: BlockPool
    largest: Sequence[int]  # blocks, by tenant
    queue_per_tenant: bool = False
    waiting: dict[int, deque[int]] = field(default_factory=dict)
    running: int = 0

    def wait(self, index: int, tenant: int) -> None:
        """Puts a request at the end of its queue."""
        queue = tenant if self.queue_per_tenant else 0
        self.waiting.setdefault(queue, deque()).append(index)

    def heads(self) -> list[deque[int]]:
        """The queues in which somebody waits, the head that came first before the others."""
        return sorted(filter(None, self.waiting.values()), key=lambda queue: queue[0])

    def acting_for(self, request: Request) -> AbstractContextManager[None]:
        """Within it, the pool serves this request's tenant; a stock pool serves anybody."""
        if isinstance(self.pool, OwnedBlockPool):
            return self.pool.acting_for(request)
        return nullcontext()

    def room(self, tenant: int, idle_hits: int) -> int:
        """Blocks that this tenant may pin now, so many of them its own cached and idle ones."""
        if isinstance(self.pool, OwnedBlockPool):
            ledger = self.pool.ledger
            return ledger.allowance(ledger.account(tenant_id(tenant)), idle_hits)
        return self.pool.get_num_free_blocks()


class Served(NamedTuple):
    """What became of one request; `hits` is None when it was refused."""

    hits: int | None  # blocks of its prompt that were cached
    waited: float  # seconds


REFUSED = Served(None, 0.0)


@dataclass(order=True)
class _Running:
    until: float
    index: int
    shelf: Shelf = field(compare=False)
    request: Request = field(compare=False)
    blocks: list[KVCacheBlock] = field(compare=False)


class Replay:
    """One pass over a workload.

    Args:
        workload: the requests.
        shelves: the pool of each tenant; tenants may share one.
        service_time: how long a request keeps its blocks.
    """

    def __init__(
        self, workload: Workload, shelves: Sequence[Shelf], service_time: ServiceTime
    ) -> None:
        self.workload = workload
        self.shelves = shelves
        self.service_time = service_time
        self.waiting: dict[int, Request] = {}
        self.running: list[_Running] = []
        self.served: dict[int, Served] = {}

    def run(self, progress: Progress = lambda: None) -> list[Served]:
        """Returns what became of each request, in the trace's order."""
        for index, call in enumerate(self.workload.calls):
            self._finish(call.at)
            tenant = self.workload.tenant_of[index]
            shelf = self.shelves[tenant]
            if self.workload.blocks_needed(index) > shelf.largest[tenant]:
                self.served[index] = REFUSED
            else:
                self.waiting[index] = self.workload.request(index)
                shelf.wait(index, tenant)
                self._admit(shelf, call.at)
            progress()
        self._finish(math.inf)
        return [self.served[index] for index in range(len(self.workload.calls))]

    def _admit(self, shelf: Shelf, now: float) -> None:
        """Starts waiting requests, first come, first served, until no queue's head fits.

        What does not fit although nothing runs is refused: no room will be made for it.
        """
        for queue in shelf.heads():
            while queue and self._start(shelf, queue[0], now):
                queue.popleft()
        while not shelf.running and (heads := shelf.heads()):
            refused = heads[0].popleft()
            del self.waiting[refused]
            self.served[refused] = REFUSED
            self._admit(shelf, now)

    def _start(self, shelf: Shelf, index: int, now: float) -> bool:
        call, pool = self.workload.calls[index], shelf.pool
        request = self.waiting[index]
        with shelf.acting_for(request):
            blocks = self._longest_prefix(pool, request)
            hits = len(blocks)
            new = self.workload.blocks_needed(index) - hits
            idle_hits = sum(block.ref_cnt == 0 for block in blocks)
            if new + idle_hits > shelf.room(self.workload.tenant_of[index], idle_hits):
                return False
            pool.touch(blocks)
            blocks += pool.get_new_blocks(new)
            self._cache(pool, request, blocks, hits, call.input_length)
        shelf.running += 1
        del self.waiting[index]
        self.served[index] = Served(hits, now - call.at)
        until = now + self.service_time(call, hits * BLOCK)
        heapq.heappush(self.running, _Running(until, index, shelf, request, blocks))
        return True

    def _longest_prefix(self, pool: BlockPool, request: Request) -> list[KVCacheBlock]:
        """The cached blocks a prompt begins with; vLLM always computes its last token."""
        found: list[KVCacheBlock] = []
        for block_hash in request.block_hashes[: (request.num_tokens - 1) // BLOCK]:
            cached = pool.get_cached_block(block_hash, [0])
            if cached is None:
                break
            found += cached
        return found

    def _cache(
        self,
        pool: BlockPool,
        request: Request,
        blocks: list[KVCacheBlock],
        cached: int,
        tokens: int,
    ) -> None:
        """Caches the blocks that `tokens` computed tokens fill and that are not cached yet."""
        pool.cache_full_blocks(
            request,
            blocks,
            num_cached_blocks=cached,
            num_full_blocks=tokens // BLOCK,
            block_size=BLOCK,
            kv_cache_group_id=0,
        )

    def _finish(self, now: float) -> None:
        """Ends the requests whose time is over: the answer's whole blocks are cached like any."""
        while self.running and self.running[0].until <= now:
            done = heapq.heappop(self.running)
            pool, request = done.shelf.pool, done.request
            cached = len(request.block_hashes)
            request.append_output_token_ids([0] * self.workload.calls[done.index].output_length)
            self._cache(pool, request, done.blocks, cached, request.num_tokens - 1)
            pool.free_blocks(reversed(done.blocks))
            done.shelf.running -= 1
            self._admit(done.shelf, done.until)
