"""Tenants' quotas, and the epoch of the policy's quota section."""

import time

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_CHANGES = sa.table("changes", sa.column("section", sa.String), sa.column("epoch", sa.BigInteger))


def upgrade() -> None:
    """Adds the table; no tenant has a quota of its own yet."""
    op.create_table(
        "quotas",
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("reserve", sa.String(40), nullable=False),
        sa.Column("ceiling", sa.String(40)),
        sa.Column("weight", sa.String(20), nullable=False),
        sa.Column("strict", sa.Boolean(), nullable=False),
        sa.Column("store", sa.Boolean(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_quotas_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", name=op.f("pk_quotas")),
    )
    # From the clock, as the first revision's, so that a restored database moves engines on.
    now = time.time_ns() // 1_000_000
    op.bulk_insert(_CHANGES, [{"section": "quotas", "epoch": now}])


def downgrade() -> None:
    """Forgets all quotas."""
    op.execute(_CHANGES.delete().where(_CHANGES.c.section == "quotas"))
    op.drop_table("quotas")
