"""Memory that Saltwall adds to vLLM's pool: for each block, and for each tenant."""

import gc
import tracemalloc
from collections.abc import Iterator

from paired import Outcome
from pools import POOL, QUICK_POOL, Pool

TENANTS, QUICK_TENANTS = 10_000, 800


def _taken(saltwall: bool, total: int, tenants: int) -> int:
    """Bytes that a pool takes whose blocks are all idle, and the requests that filled it."""
    gc.collect()
    tracemalloc.start()
    pool = Pool(saltwall, total, tenants)
    pool.fill()
    for request in pool.requests:
        request.block_hashes = []
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return taken


def outcomes(quick: bool) -> Iterator[Outcome]:
    """Blocks that one tenant holds; and what more it takes when many hold them."""
    total, tenants = (QUICK_POOL, QUICK_TENANTS) if quick else (POOL, TENANTS)
    stock, ours = (_taken(saltwall, total, 1) for saltwall in (False, True))
    yield Outcome("memory", f"an idle block, of {total:,}", "bytes", stock / total, ours / total)
    stock_many, ours_many = (_taken(saltwall, total, tenants) for saltwall in (False, True))
    yield Outcome(
        "memory",
        f"a tenant, of {tenants:,}, with one request",
        "bytes",
        (stock_many - stock) / tenants,
        (ours_many - ours) / tenants,
    )
