"""The audit log's hash chain; the events that are there are chained in their order."""

import hashlib
from datetime import UTC, datetime, timedelta

import cbor2
import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_KEPT = {"sqlite_autoincrement": True}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EVENTS = sa.table(
    "audit_events",
    sa.column("sequence", sa.BigInteger),
    sa.column("at", sa.DateTime(timezone=True)),
    *(sa.column(name, sa.String) for name in ("actor", "action", "subject")),
    sa.column("detail", sa.JSON),
    sa.column("hash", sa.LargeBinary),
)


def upgrade() -> None:
    """Numbers the events 1, 2, 3, ... (PostgreSQL may have left gaps) and hashes them."""
    op.add_column("audit_events", sa.Column("hash", sa.LargeBinary()))
    connection, previous = op.get_bind(), bytes(32)
    rows = connection.execute(sa.select(_EVENTS).order_by(_EVENTS.c.sequence)).all()
    for number, row in enumerate(rows, 1):
        at = row.at if row.at.tzinfo is not None else row.at.replace(tzinfo=UTC)
        start = ["saltwall/audit-event/1", previous, number]
        fields = [(at - _EPOCH) // timedelta(microseconds=1), *row[2:6]]
        previous = hashlib.sha256(cbor2.dumps([*start, *fields], canonical=True)).digest()
        change = _EVENTS.update().where(_EVENTS.c.sequence == row.sequence)
        connection.execute(change.values(sequence=number, hash=previous))
    with op.batch_alter_table("audit_events", table_kwargs=_KEPT) as table:
        table.alter_column("hash", nullable=False)


def downgrade() -> None:
    """Forgets the chain; the events stay."""
    if op.get_bind().dialect.name == "postgresql":  # where the log has counted on without it
        op.execute(
            "SELECT setval(pg_get_serial_sequence('audit_events', 'sequence'),"
            " (SELECT coalesce(max(sequence), 0) + 1 FROM audit_events), false)"
        )
    with op.batch_alter_table("audit_events", table_kwargs=_KEPT) as table:
        table.drop_column("hash")
