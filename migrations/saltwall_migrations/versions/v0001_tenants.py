"""Tenants, their keys and salts, the usage ledger, the audit log and the change counter."""

import time

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Makes the first tables."""
    op.create_table(
        "tenants",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.CheckConstraint(
            "status IN ('active', 'suspended', 'deleted')", name=op.f("ck_tenants_status")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tenants")),
    )
    _unique_while("tenants", "uq_tenants_name_in_use", "name", "status <> 'deleted'")
    op.create_table(
        "api_keys",
        sa.Column("public_id", sa.String(12), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("label", sa.String(100), nullable=False),
        sa.Column("models", sa.JSON(none_as_null=True)),
        sa.Column("mac", sa.LargeBinary(), nullable=False),
        sa.Column("pepper_version", sa.Integer(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("expires_at", _TIME),
        sa.Column("revoked_at", _TIME),
        sa.Column("last_used_at", _TIME),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_api_keys_tenant_id")),
        sa.PrimaryKeyConstraint("public_id", name=op.f("pk_api_keys")),
    )
    op.create_index(op.f("ix_api_keys_tenant_id"), "api_keys", ["tenant_id"])
    op.create_table(
        "salts",
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("generation", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("kek_id", sa.String(64)),
        sa.Column("wrapped_key", sa.LargeBinary()),
        sa.Column("sealed", sa.LargeBinary()),
        sa.Column("grace_s", sa.Integer(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("retire_at", _TIME),
        sa.CheckConstraint(
            "status IN ('pending', 'current', 'retiring', 'revoked')", name=op.f("ck_salts_status")
        ),
        sa.CheckConstraint(
            "(status = 'revoked') = (sealed IS NULL)"
            " AND (sealed IS NULL) = (wrapped_key IS NULL)"
            " AND (sealed IS NULL) = (kek_id IS NULL)",
            name=op.f("ck_salts_revoked_is_destroyed"),
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_salts_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "generation", name=op.f("pk_salts")),
    )
    _unique_while("salts", "uq_salts_current", "tenant_id", "status = 'current'")
    _unique_while("salts", "uq_salts_pending", "tenant_id", "status = 'pending'")
    op.create_table(
        "usage",
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("key_id", sa.String(12), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("route", sa.String(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("started_at", _TIME, nullable=False),
        sa.Column("duration_s", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_usage_tenant_id")),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_usage")),
    )
    op.create_index("ix_usage_tenant_id_started_at", "usage", ["tenant_id", "started_at"])
    op.create_table(
        "audit_events",
        sa.Column("sequence", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_audit_events")),
        sqlite_autoincrement=True,
    )
    changes = op.create_table(
        "changes",
        sa.Column("section", sa.String(32), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("section", name=op.f("pk_changes")),
    )
    # From the clock, so that engines which knew an earlier database accept this one's policy.
    now = time.time_ns() // 1_000_000
    op.bulk_insert(
        changes,
        [{"section": "authorisation", "epoch": now}, {"section": "keys", "epoch": now}],
    )


def downgrade() -> None:
    """Drops everything."""
    for table in ("changes", "audit_events", "usage", "salts", "api_keys", "tenants"):
        op.drop_table(table)


def _unique_while(table: str, name: str, column: str, condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, table, [column], unique=True, sqlite_where=where, postgresql_where=where)
