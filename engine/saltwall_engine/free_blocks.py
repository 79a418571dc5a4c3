"""Where the unreferenced blocks are: a stack of free ones, and an LRU list of idle ones a tenant.

Stands in the place of vLLM's `FreeKVCacheBlockQueue`, which is a single LRU list for everybody. The
victim of an eviction is the least recently used idle block among tenants above their reserve; it is
found through a heap over the heads of their lists, whose entries may be out of date, but only
early: a list's head only ever gets younger.
"""

from heapq import heappop, heappush, heapreplace
from typing import Any

from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue

from saltwall_engine.ledger import Account, Ledger

NEVER = float("inf")


class FreeBlocks:
    """The unreferenced blocks of one pool; each method keeps the ledger in step."""

    def __init__(self, blocks: list[Any], num_gpu_blocks: int, ledger: Ledger) -> None:
        self.ledger = ledger
        self._free = blocks[::-1]
        self._stamps = [0] * num_gpu_blocks
        self._clock = 0
        self._heads: list[tuple[int, int, Account]] = []

    @property
    def num_free_blocks(self) -> int:
        """Unreferenced blocks of all tenants and of none."""
        return self.ledger.free + self.ledger.idle

    def take_free(self, account: Account, wanted: int) -> list[Any]:
        """Takes blocks that nobody holds, of which there are enough."""
        if not wanted:
            return []
        stack = self._free
        if wanted == 1:
            blocks = [stack.pop()]
        else:
            blocks = stack[: -wanted - 1 : -1]
            del stack[-wanted:]
        self.ledger.take_free(account, wanted)
        if account.evictable and not account.listed:
            self.settle(account)
        return blocks

    def take(self, account: Account, wanted: int, ceiling: int) -> tuple[list[Any], int]:
        """Takes blocks for a tenant whose allowance has been checked.

        Returns:
            The blocks, and how many of them, at the front, were free; the others are evicted and
            still carry their hash.
        """
        ledger, stamps = self.ledger, self._stamps
        fresh = 0
        blocks: list[Any] = []
        if ledger.free:
            fresh = max(0, min(wanted, ledger.free, ceiling - account.pinned - account.idle))
            blocks = self.take_free(account, fresh)
        left = wanted - fresh
        while left > 0:
            at_ceiling = account.pinned + account.idle >= ceiling
            victim = account if at_ceiling else self._victim(account)
            most, until = self._streak(victim, account, ceiling)
            if most > left:
                most = left
            cache = victim.cache
            head = cache.fake_free_list_head
            block = head.next_free_block
            taken = 0
            while taken < most and stamps[block.block_id] <= until:
                blocks.append(block)
                following = block.next_free_block
                block.prev_free_block = block.next_free_block = None
                block = following
                taken += 1
            head.next_free_block, block.prev_free_block = block, head
            cache.num_free_blocks -= taken
            ledger.take_idle(account, victim, taken)
            if account.evictable and not account.listed:
                self.settle(account)
            left -= taken
        return blocks, fresh

    def take_one(self, account: Account) -> Any:
        """Takes the idle block that goes next, for a tenant below its ceiling."""
        victim = self._victim(account)
        cache = victim.cache
        head = cache.fake_free_list_head
        block = head.next_free_block
        following = block.next_free_block
        head.next_free_block, following.prev_free_block = following, head
        block.prev_free_block = block.next_free_block = None
        cache.num_free_blocks -= 1
        self.ledger.take_idle(account, victim, 1)
        if account.evictable and not account.listed:
            self.settle(account)
        return block

    def _victim(self, account: Account) -> Account:
        """Whose idle block goes next, for a tenant below its ceiling."""
        heads, stamps = self._heads, self._stamps
        while heads:
            stamp, serial, victim = heads[0]
            if not victim.evictable:
                heappop(heads)
                victim.listed = False
                continue
            now = stamps[victim.cache.fake_free_list_head.next_free_block.block_id]
            if now != stamp:
                heapreplace(heads, (now, serial, victim))
            elif account.evictable or not account.idle or stamp < self._own(account):
                return victim
            else:
                break
        return account

    def _own(self, account: Account) -> float:
        """The stamp at which a tenant with no more than its reserve replaces a block of its own."""
        if account.pinned + account.idle < account.reserve:
            return NEVER
        return self._stamps[account.cache.fake_free_list_head.next_free_block.block_id]

    def _streak(self, victim: Account, account: Account, ceiling: int) -> tuple[int, float]:
        """How many more blocks `_victim` would choose alike, and the youngest stamp among them."""
        heads = self._heads
        held = account.pinned + account.idle
        if held >= ceiling:
            return account.idle, NEVER
        if not heads or heads[0][2] is not victim:
            return account.idle, heads[0][0] if heads else NEVER
        until = NEVER
        if len(heads) > 1:
            until = heads[1][0]
            if len(heads) > 2 and heads[2][0] < until:
                until = heads[2][0]
        if account.idle and not account.evictable:
            until = min(until, self._own(account))
        most = victim.evictable
        if victim is not account:  # each block taken brings the account nearer to a bound
            room = (account.reserve if held < account.reserve else ceiling) - held
            if room < most:
                most = room
        return most, until

    def release(self, account: Account, idle: list[Any], free: list[Any]) -> None:
        """Blocks lost their last reference: the cached ones are idle, the others free."""
        if free:
            free.reverse()
            self._free += free
        if idle:
            self._clock = stamp = self._clock + 1
            stamps = self._stamps
            for block in idle:
                stamps[block.block_id] = stamp
            queue = account.cache
            if queue is None:
                queue = account.cache = FreeKVCacheBlockQueue([])
            queue.append_n(idle)
        self.ledger.unpin(account, len(idle), len(free))
        if account.evictable and not account.listed:
            self.settle(account)

    def settle(self, account: Account) -> None:
        """Lets other tenants find what has become evictable of this one."""
        if account.evictable and not account.listed:
            account.listed = True
            head = account.cache.fake_free_list_head.next_free_block
            heappush(self._heads, (self._stamps[head.block_id], id(account), account))

    def pin(self, account: Account, blocks: list[Any]) -> None:
        """Idle blocks of one tenant are referenced again."""
        remove = account.cache.remove
        for block in blocks:
            remove(block)
        self.ledger.pin(account, len(blocks))

    def discard(self, account: Account, block: Any) -> None:
        """An idle block that lost its hash is free."""
        account.cache.remove(block)
        self._free.append(block)
        self.ledger.discard(account, 1)

    def oldest(self, account: Account) -> Any:
        """The tenant's least recently used idle block."""
        return account.cache.fake_free_list_head.next_free_block

    def discard_all(self) -> None:
        """Every idle block has lost its hash; they are taken in the order they would have been."""
        self._free = self.get_all_free_blocks()[::-1]
        for block in self._free:
            block.prev_free_block = block.next_free_block = None
        for account in self.ledger.accounts.values():
            account.cache, account.listed = None, False
        self._heads.clear()
        self.ledger.forget_idle()

    def get_all_free_blocks(self) -> list[Any]:
        """All of them, in the order in which a single tenant would be given them."""
        idle = [
            block
            for account in self.ledger.accounts.values()
            if account.cache is not None
            for block in account.cache.get_all_free_blocks()
        ]
        idle.sort(key=lambda block: self._stamps[block.block_id])
        return self._free[::-1] + idle

    def check_integrity(self) -> None:
        """Raises:
        AssertionError: lists and ledger disagree, or an evictable block cannot be found.
        """
        if len(self._free) != self.ledger.free:
            raise AssertionError(f"{len(self._free)} blocks on a stack of {self.ledger.free}")
        listed = [account for _, _, account in self._heads]
        if len(set(listed)) != len(listed):
            raise AssertionError("a tenant is twice in the heap")
        for account in self.ledger.accounts.values():
            blocks = account.cache.get_all_free_blocks() if account.cache is not None else []
            if len(blocks) != account.idle:
                raise AssertionError(f"{account.tenant}: {len(blocks)} listed, {account.idle} idle")
            stamps = [self._stamps[block.block_id] for block in blocks]
            if stamps != sorted(stamps):
                raise AssertionError(f"{account.tenant}: idle blocks out of order")
            if account.listed != (account in listed) or (account.evictable and not account.listed):
                raise AssertionError(f"{account.tenant}: evictable, and not in the heap")
        for stamp, _, account in self._heads:
            if account.idle and stamp > self._stamps[self.oldest(account).block_id]:
                raise AssertionError(f"{account.tenant}: a head younger than its list")
