"""One tenant's pool operations, recorded amid everybody's, and carried out on a pool alone."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from saltwall_engine.ledger import Quota
from saltwall_engine.pool import OwnedBlockPool
from saltwall_engine.salt_label import Owner


@dataclass
class Recording:
    """What a tenant did, in order, and what became of it."""

    tenant: Any
    operations: list[tuple[Any, ...]] = field(default_factory=list)
    lookups: list[bool] = field(default_factory=list)
    """For each block hash looked up: whether it was a hit."""
    evicted: list[bytes] = field(default_factory=list)
    """The hashes of its blocks that were evicted, whoever needed the block."""


class RecordedPool(OwnedBlockPool):
    """A pool that records what is done for one tenant's blocks."""

    recording: Recording

    def _mine(self, block: Any) -> bool:
        holder = self.holders[block.block_id]
        return (
            holder is not None
            and not block.is_null
            and holder.account.tenant == self.recording.tenant
        )

    def _acting(self) -> bool:
        return self._holder is not None and self._holder.account.tenant == self.recording.tenant

    def _ids(self, blocks: Iterable[Any]) -> tuple[int, ...]:
        return tuple(block.block_id for block in blocks if self._mine(block))

    def get_cached_block(self, block_hash: Any, kv_cache_group_ids: list[int]) -> Any:
        """Recorded, if the tenant looks."""
        blocks = super().get_cached_block(block_hash, kv_cache_group_ids)
        if self._acting():
            holder: Any = self._holder
            ids = None if blocks is None else self._ids(blocks)
            self.recording.operations.append(
                ("look", holder.owner, block_hash, tuple(kv_cache_group_ids), ids)
            )
            self.recording.lookups.append(ids is not None)
        return blocks

    def get_new_blocks(self, num_blocks: int) -> list[Any]:
        """Recorded, if the tenant takes them."""
        with self._watching():
            blocks = super().get_new_blocks(num_blocks)
        if self._acting() and blocks:
            holder: Any = self._holder
            self.recording.operations.append(("take", holder.owner, self._ids(blocks)))
        return blocks

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Records which of the tenant's idle blocks lose their hash meanwhile."""
        unreferenced = self.free_block_queue.get_all_free_blocks()
        before = [(b, b.block_hash) for b in unreferenced if self._mine(b)]
        yield
        self.recording.evicted += [h for b, h in before if h is not None and b.block_hash != h]

    def touch(self, blocks: Sequence[Any]) -> None:
        """Recorded, for the tenant's blocks."""
        super().touch(blocks)
        self._record("touch", blocks)

    def free_blocks(self, ordered_blocks: Iterable[Any]) -> None:
        """Recorded, for the tenant's blocks."""
        blocks = list(ordered_blocks)
        self._record("free", blocks)
        with self._watching():
            super().free_blocks(blocks)

    def _record(self, what: str, blocks: Sequence[Any]) -> None:
        if ids := self._ids(blocks):
            self.recording.operations.append((what, ids))

    def _insert_block_hash(self, block_hash: Any, block: Any, num_tokens: int | None) -> None:
        super()._insert_block_hash(block_hash, block, num_tokens)
        if self._mine(block):
            self.recording.operations.append(("cache", block_hash, block.block_id, num_tokens))

    def purge(self, owners: Sequence[Owner], seconds: float) -> tuple[int, int]:
        """Recorded, for the tenant's own generations."""
        mine = [owner for owner in owners if owner.tenant == self.recording.tenant]
        if mine:
            self.recording.operations.append(("purge", mine))
        with self._watching():
            return super().purge(owners, seconds)

    def trim(self, account: Any, most: int | None = None) -> bool:
        """What the tenant loses by it is recorded."""
        with self._watching():
            return super().trim(account, most)


def record(pool: OwnedBlockPool, tenant: Any) -> Recording:
    """Records from now on what is done for a tenant whose blocks are all still free."""
    pool.__class__ = RecordedPool
    pool.recording = Recording(tenant)
    return pool.recording


def replay(recording: Recording, pool: OwnedBlockPool, quota: Quota) -> Recording:
    """Carries the recorded operations out on a pool with nobody else in it.

    Returns:
        What became of them there.
    """
    pool.set_quota(recording.tenant, quota)
    alone = record(pool, recording.tenant)
    blocks: dict[int, Any] = {}
    for what, *details in recording.operations:
        if what == "look":
            owner, block_hash, groups, _ = details
            before = pool.act_for(pool.holder(owner))
            pool.get_cached_block(block_hash, list(groups))
            pool.act_for(before)
        elif what == "take":
            owner, ids = details
            before = pool.act_for(pool.holder(owner))
            blocks |= zip(ids, pool.get_new_blocks(len(ids)), strict=True)
            pool.act_for(before)
        elif what == "touch":
            pool.touch([blocks[i] for i in details[0]])
        elif what == "free":
            pool.free_blocks([blocks[i] for i in details[0]])
        elif what == "cache":
            block_hash, i, num_tokens = details
            pool._insert_block_hash(block_hash, blocks[i], num_tokens)
        elif what == "purge":
            pool.purge(details[0], 60)
    return alone
