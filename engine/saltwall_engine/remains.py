"""Which blocks still hold what purged tenants computed, until that has been overwritten.

A block that lost its hash cannot be found any more, but keys and values stay in it; and once it has
passed on to another tenant, in the part that is not filled yet. So with a purge every block without
a hash is due, whoever held it last: at once if nobody references it, when it is freed if somebody
does, and before the step that writes to it if it is taken meanwhile. Blocks with a hash are full:
what was in them before is gone.
"""

from collections.abc import Iterable
from typing import Any

from saltwall_engine.salt_label import Owner


class Remains:
    """The books of one pool; nothing is ever due in one that does not erase.

    Args:
        batch: blocks that one slice of a purge may add; 0 to not erase.
    """

    __slots__ = ("batch", "due", "purged", "renewed", "when_freed")

    def __init__(self, batch: int = 0) -> None:
        self.batch = batch
        self.purged: set[Owner] = set()
        """Whose purge is under way."""
        self.due: list[int] = []
        """Blocks to overwrite before the next step."""
        self.when_freed: set[int] = set()
        """Referenced blocks that are due when they are freed."""
        self.renewed: set[int] = set()
        """Blocks that were taken while a purge was under way."""

    def begin(self, owners: Iterable[Owner]) -> None:
        """From now on blocks that are taken are due, whoever takes them."""
        if self.batch:
            self.purged.update(owners)

    def end(self, owners: Iterable[Owner]) -> None:
        """Every block has been looked at for these owners."""
        self.purged.difference_update(owners)
        if not self.purged:
            self.renewed.clear()

    @property
    def full(self) -> bool:
        """Whether a slice has added as many blocks as it may."""
        return 0 < self.batch <= len(self.due)

    def take(self) -> list[int]:
        """The blocks to overwrite now, each named once."""
        due, self.due = self.due, []
        return due

    def freed(self, blocks: Iterable[Any], holders: list[Any]) -> None:
        """Some blocks lost a reference: those that have none left, and no hash, are due."""
        for block in blocks:
            at = block.block_id
            if at in self.when_freed and block.ref_cnt == 0:
                self.when_freed.discard(at)
                if block.block_hash is None:
                    self.due.append(at)
                    holders[at] = None

    def taken(self, blocks: Iterable[Any], holders: list[Any]) -> None:
        """Some blocks were taken while a purge is under way; `holders` has who had them before."""
        for block in blocks:
            at = block.block_id
            if holders[at] is not None:
                self.due.append(at)
            self.renewed.add(at)

    def look(self, block: Any, holders: list[Any], purged: bool) -> None:
        """Looks at a block without a hash, after a purge has unhashed what it must.

        Args:
            block: the block.
            holders: by block, who has it or had it last; None for one that was never used since it
                was overwritten.
            purged: whether its holder is one of those purged.
        """
        at = block.block_id
        if holders[at] is None or (at in self.renewed and not purged):
            return
        if block.ref_cnt:
            self.when_freed.add(at)
        else:
            self.due.append(at)
            holders[at] = None
