"""Epochs: max(last + 1, unix milliseconds), per section."""

import time

import pytest
from sqlalchemy import update
from sqlalchemy.exc import NoResultFound

from saltwall_tenants import changes
from saltwall_tenants.database import Database
from saltwall_tenants.models import ChangeRow


def milliseconds() -> int:
    """Now."""
    return time.time_ns() // 1_000_000


async def test_epoch_follows_the_clock(db: Database) -> None:
    """After a while of no change, the next epoch is the time: a restored database overtakes."""
    async with db.transaction() as tx:
        await tx.execute(update(ChangeRow).values(epoch=1000))
        earliest = milliseconds()
        epoch = await changes.bump(tx, changes.KEYS)
    assert earliest <= epoch <= milliseconds()


async def test_epoch_moves_on_when_the_clock_does_not(db: Database) -> None:
    """Ahead of the clock (it was set back, or changes come fast), an epoch is the last plus one."""
    ahead = milliseconds() + 3_600_000
    async with db.transaction() as tx:
        await tx.execute(update(ChangeRow).values(epoch=ahead))
        assert await changes.bump(tx, changes.AUTHORISATION) == ahead + 1
        assert await changes.bump(tx, changes.AUTHORISATION) == ahead + 2
        assert await changes.read(tx) == {
            "authorisation": ahead + 2,
            "keys": ahead,
            "quotas": ahead,
        }


async def test_sections_start_at_the_time_of_migration(db: Database) -> None:
    """A new database's epochs are later than those of any earlier one."""
    async with db.snapshot() as tx:
        epochs = await changes.read(tx)
    assert set(epochs) == {"authorisation", "keys", "quotas"}
    assert all(milliseconds() - 3_600_000 < epoch <= milliseconds() for epoch in epochs.values())


async def test_unknown_section_is_an_error(db: Database) -> None:
    """A misspelt section never passes for a bumped one."""
    async with db.transaction() as tx:
        with pytest.raises(NoResultFound):
            await changes.bump(tx, "authorization")
