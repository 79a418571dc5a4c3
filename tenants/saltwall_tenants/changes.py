"""The change counter: what gateways poll, and the epoch of what they push to engines."""

import time

from sqlalchemy import BigInteger, case, literal, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_tenants.models import ChangeRow

AUTHORISATION = "authorisation"
KEYS = "keys"
QUOTAS = "quotas"


async def lock(tx: AsyncSession) -> None:
    """Makes this transaction the only one that changes things, until it ends.

    Every mutating service call starts here. Such changes are rare; in return their order is that
    of the epochs and of the audit log, no check can be outrun, and none can deadlock.
    """
    # On SQLite the transaction has held the write lock since it began.
    await tx.execute(select(ChangeRow.section).order_by(ChangeRow.section).with_for_update())


async def bump(tx: AsyncSession, section: str) -> int:
    """Moves a section to its next epoch: max(last + 1, unix milliseconds).

    The clock makes a database that was restored from a backup overtake what engines already hold.
    """
    now = literal(time.time_ns() // 1_000_000, BigInteger)
    following = case((ChangeRow.epoch < now, now), else_=ChangeRow.epoch + 1)
    statement = update(ChangeRow).where(ChangeRow.section == section).values(epoch=following)
    return int((await tx.execute(statement.returning(ChangeRow.epoch))).scalar_one())


async def read(tx: AsyncSession) -> dict[str, int]:
    """The epoch of every section."""
    rows = await tx.execute(select(ChangeRow.section, ChangeRow.epoch))
    return {row.section: row.epoch for row in rows}
