"""The tables. No relationships: services select what they need, and say so."""

from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Uuid,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

TenantStatus = Literal["active", "suspended", "deleted"]
SaltStatus = Literal["pending", "current", "retiring", "revoked"]


class UtcDateTime(TypeDecorator[datetime]):
    """A timezone-aware time on every database; SQLite, which keeps no zone, holds UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuses a naive time, which would be some unknown place's."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("give a timezone-aware time")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Returns UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """Every table of Saltwall."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own protocol
        UUID: Uuid(),
        datetime: UtcDateTime(),
        bytes: LargeBinary(),
        dict[str, Any]: JSON(),
        list[str]: JSON(none_as_null=True),
    }


def _unique_while(name: str, column: str, condition: str) -> Index:
    """At most one row with this column's value among those that satisfy the condition."""
    where = text(condition)
    return Index(name, column, unique=True, sqlite_where=where, postgresql_where=where)


class TenantRow(Base):
    """A tenant. A deleted one stays, for the ledgers; its name is free again."""

    __tablename__ = "tenants"
    __table_args__ = (
        CheckConstraint("status IN ('active', 'suspended', 'deleted')", name="status"),
        _unique_while("uq_tenants_name_in_use", "name", "status <> 'deleted'"),
    )
    id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(63))
    status: Mapped[TenantStatus] = mapped_column(String(16))
    created_at: Mapped[datetime]


class ApiKeyRow(Base):
    """An API key, found by its public id; of the secret only a MAC is kept."""

    __tablename__ = "api_keys"
    public_id: Mapped[str] = mapped_column(String(12), primary_key=True)
    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id"), index=True)
    label: Mapped[str] = mapped_column(String(100))
    models: Mapped[list[str] | None]
    mac: Mapped[bytes]
    pepper_version: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]


class SaltRow(Base):
    """One generation of a tenant's salt secret, sealed; a revoked one holds no secret at all."""

    __tablename__ = "salts"
    __table_args__ = (
        CheckConstraint("status IN ('pending', 'current', 'retiring', 'revoked')", name="status"),
        CheckConstraint(
            "(status = 'revoked') = (sealed IS NULL)"
            " AND (sealed IS NULL) = (wrapped_key IS NULL)"
            " AND (sealed IS NULL) = (kek_id IS NULL)",
            name="revoked_is_destroyed",
        ),
        _unique_while("uq_salts_current", "tenant_id", "status = 'current'"),
        _unique_while("uq_salts_pending", "tenant_id", "status = 'pending'"),
    )
    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    generation: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    status: Mapped[SaltStatus] = mapped_column(String(16))
    kek_id: Mapped[str | None] = mapped_column(String(64))
    wrapped_key: Mapped[bytes | None]
    sealed: Mapped[bytes | None]
    grace_s: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[datetime]
    retire_at: Mapped[datetime | None]


class QuotaRow(Base):
    """A tenant's share of every engine's KV cache; amounts are exact text. None is the default."""

    __tablename__ = "quotas"
    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    reserve: Mapped[str] = mapped_column(String(40))
    ceiling: Mapped[str | None] = mapped_column(String(40))
    weight: Mapped[str] = mapped_column(String(20))
    strict: Mapped[bool] = mapped_column(Boolean)
    store: Mapped[bool] = mapped_column(Boolean)
    updated_at: Mapped[datetime]


class UsageRow(Base):
    """What one request used, once."""

    __tablename__ = "usage"
    __table_args__ = (Index("ix_usage_tenant_id_started_at", "tenant_id", "started_at"),)
    request_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id"))
    key_id: Mapped[str] = mapped_column(String(12))
    model: Mapped[str] = mapped_column(String)
    route: Mapped[str] = mapped_column(String)
    prompt_tokens: Mapped[int] = mapped_column(BigInteger)
    cached_tokens: Mapped[int] = mapped_column(BigInteger)
    completion_tokens: Mapped[int] = mapped_column(BigInteger)
    status: Mapped[int] = mapped_column(Integer)
    started_at: Mapped[datetime]
    duration_s: Mapped[float] = mapped_column(Float)


class AuditEventRow(Base):
    """An act that changed something; rows are only ever added, and `audit.record` numbers them."""

    __tablename__ = "audit_events"
    __table_args__ = ({"sqlite_autoincrement": True},)
    sequence: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer, "sqlite"), primary_key=True
    )
    at: Mapped[datetime]
    actor: Mapped[str] = mapped_column(String)
    action: Mapped[str] = mapped_column(String)
    subject: Mapped[str] = mapped_column(String)
    detail: Mapped[dict[str, Any]]
    hash: Mapped[bytes]


class ChangeRow(Base):
    """The epoch of one section of what gateways and engines keep copies of."""

    __tablename__ = "changes"
    section: Mapped[str] = mapped_column(String(32), primary_key=True)
    epoch: Mapped[int] = mapped_column(BigInteger)
