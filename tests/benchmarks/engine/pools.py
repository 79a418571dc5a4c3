"""The block pool: allocation and release, with few and with many tenants.

Each tenant's idle blocks lie in runs of ten, as a short request leaves them, and each call is
another tenant's. Every pool is used up once: no block is evicted that the benchmark itself cached.
"""

import random
from collections.abc import Iterator
from typing import Any

from bare_core import BLOCK
from paired import Outcome, Side, Stopwatch, measure
from vllm.v1.core.block_pool import BlockPool
from world import request, tenant

from saltwall_engine.pool import own

GOALS = {512: 1.0, 8: 1.3, 1: 2.0}
"""By blocks per call."""

POOL, TENANTS, ROUNDS = 100_000, (1, 100, 10_000), 14
QUICK_POOL, QUICK_TENANTS, QUICK_ROUNDS = 8_000, (1, 100), 4
RUN = 10


class Pool:
    """A pool of `total` usable blocks, stock or Saltwall's, and one request for each tenant."""

    def __init__(self, saltwall: bool, total: int, tenants: int) -> None:
        self.pool: Any = BlockPool(total + 1, enable_caching=True, hash_block_size=BLOCK)
        if saltwall:
            self.pool = own(self.pool, may_cache=lambda owner: True)
        self.saltwall, self.total = saltwall, total
        self.requests = [request([0], tenant(i)) for i in range(tenants)]
        self.hashes = 0

    def take(self, whose: Any, blocks: int) -> list[Any]:
        """Allocates as `KVCacheManager.allocate_slots` does."""
        pool = self.pool
        if (
            whose.num_computed_tokens
        ):  # which it reads first, so that stock too has seen the request
            raise AssertionError("the request has blocks")
        if not self.saltwall:
            return pool.get_new_blocks(blocks)
        before = pool.act_for(pool.holder_of(whose))
        taken = pool.get_new_blocks(blocks)
        pool.act_for(before)
        return taken

    def cache(self, whose: Any, blocks: list[Any]) -> None:
        """Gives each block a hash, which nothing else has."""
        first = self.hashes
        self.hashes += len(blocks)
        whose.block_hashes = [i.to_bytes(32, "big") for i in range(first, self.hashes)]
        self.pool.cache_full_blocks(whose, blocks, 0, len(blocks), BLOCK, 0)

    def fill(self) -> None:
        """Makes every block idle, in runs of one tenant's."""
        for i in range(self.total // RUN):
            whose = self.requests[i % len(self.requests)]
            blocks = self.take(whose, RUN)
            self.cache(whose, blocks)
            self.pool.free_blocks(blocks)


def _side(pool: Pool, blocks: int, calls: int, evicting: bool) -> Side:
    """Allocates in `calls` calls by random tenants, and then releases."""
    name, release = ("evict", "release, idle") if evicting else ("alloc", "release, free")

    def side() -> dict[str, float]:
        callers = random.choices(pool.requests, k=calls)
        taking, freeing = Stopwatch(), Stopwatch()
        take, taken = pool.take, []
        with taking:
            for whose in callers:
                taken.append(take(whose, blocks))
        if evicting:
            for whose, each in zip(callers, taken, strict=True):
                pool.cache(whose, each)
        free = pool.pool.free_blocks
        with freeing:
            for each in taken:
                free(each)
        scale = 1e6 / calls / blocks
        return {name: taking.seconds * scale, release: freeing.seconds * scale}

    return side


def outcomes(quick: bool) -> Iterator[Outcome]:
    """Blocks taken from free ones and from idle ones, and their release as free and as idle."""
    total = QUICK_POOL if quick else POOL
    rounds = QUICK_ROUNDS if quick else ROUNDS
    for tenants in QUICK_TENANTS if quick else TENANTS:
        for evicting in (False, True):
            for blocks, goal in GOALS.items():
                calls = total // (rounds + 1) // blocks  # a pool lasts one round longer
                pools = [Pool(ours, total, tenants) for ours in (False, True, False)]
                if evicting:
                    for pool in pools:
                        pool.fill()
                sides = [_side(pool, blocks, calls, evicting) for pool in pools]
                for name, series in measure(*sides, rounds).items():
                    case = f"{name}, n={blocks}, tenants={tenants:,}"
                    asked = None if name.startswith("release") else goal
                    yield Outcome.of("pool", case, "µs/block", series, goal=asked)
                if evicting:
                    pools[1].pool.check_integrity()
