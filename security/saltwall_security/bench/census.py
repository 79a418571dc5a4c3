"""Who holds which block, found out without asking the scheduler's own books.

A block is pinned if vLLM counts references to it, and cached if vLLM's hash table leads to it. It
belongs to the tenant whose request last had it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from saltwall_security.bench.engine import Engine


@dataclass(frozen=True)
class Count:
    """The blocks at one moment, by id.

    Args:
        pinned: by tenant.
        idle: by tenant, cached and referenced by nobody.
        hashes: of every cached block.
        free: neither pinned nor cached.
    """

    pinned: Mapping[str, frozenset[int]]
    idle: Mapping[str, frozenset[int]]
    hashes: Mapping[int, bytes]
    free: int

    def held(self, tenant: str) -> int:
        """Blocks that the tenant pins or has cached."""
        return len(self.pinned.get(tenant, ())) + len(self.idle.get(tenant, ()))

    def cached(self, tenant: str) -> frozenset[bytes]:
        """The hashes of the tenant's cached blocks, pinned or idle."""
        ids = self.pinned.get(tenant, frozenset()) | self.idle.get(tenant, frozenset())
        return frozenset(self.hashes[block] for block in ids if block in self.hashes)


class Census:
    """Counts an engine's blocks; it must be there before the first request is scheduled."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._owner: dict[int, str] = {}
        engine.watchers.append(self._note)

    def _note(self, scheduled: Any) -> None:
        """Blocks change hands only when something is scheduled."""
        engine = self._engine
        for name in scheduled.num_scheduled_tokens:
            tenant = engine.jobs[name].tenant
            for group in engine.scheduler.kv_cache_manager.get_block_ids(name):
                self._owner.update(dict.fromkeys(group, tenant))

    def count(self) -> Count:
        """What every block is now."""
        pinned: dict[str, set[int]] = {}
        idle: dict[str, set[int]] = {}
        hashes, free = {}, 0
        table = self._engine.pool.cached_block_hash_to_block
        for block in self._engine.pool.blocks:
            if block.is_null:
                continue
            key = block.block_hash
            if key is not None and table.contain(key, block.block_id):
                hashes[block.block_id] = bytes(key)
            owner = self._owner.get(block.block_id, "")
            if block.ref_cnt > 0:
                pinned.setdefault(owner, set()).add(block.block_id)
            elif block.block_id in hashes:
                idle.setdefault(owner, set()).add(block.block_id)
            else:
                free += 1
        return Count(
            {tenant: frozenset(ids) for tenant, ids in pinned.items()},
            {tenant: frozenset(ids) for tenant, ids in idle.items()},
            hashes,
            free,
        )
