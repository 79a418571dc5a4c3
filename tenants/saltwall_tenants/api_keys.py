"""API keys: made, listed, revoked, and checked on every request."""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BindParameter, bindparam, func, insert, literal, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_tenants import audit, changes, key_format
from saltwall_tenants.clock import utc_now
from saltwall_tenants.errors import Invalid, KeyUnavailable, NotFound
from saltwall_tenants.key_format import KeyParts
from saltwall_tenants.keyring import Keyring
from saltwall_tenants.models import ApiKeyRow, TenantRow, TenantStatus
from saltwall_tenants.registry import TenantRef, get, get_live
from saltwall_tenants.wire.encoding import cbor

MAX_LABEL_CHARS = 100
_NOBODY = literal(UUID(int=0), ApiKeyRow.tenant_id.type)


@dataclass(frozen=True)
class ApiKey:
    """A key as it is listed; `models` None allows every model."""

    public_id: str
    tenant_id: UUID
    label: str
    models: frozenset[str] | None
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None


@dataclass(frozen=True)
class NewKey:
    """A key just made: the only time its plaintext exists here."""

    record: ApiKey
    plaintext: str = field(repr=False)


@dataclass(frozen=True)
class Principal:
    """Whose request this is; `expires_at` bounds how long the answer may be kept."""

    tenant_id: UUID
    tenant_name: str
    tenant_status: TenantStatus
    key_id: str
    models: frozenset[str] | None
    expires_at: datetime | None


async def create(
    tx: AsyncSession,
    keyring: Keyring,
    tenant: TenantRef,
    *,
    label: str = "",
    models: Sequence[str] | None = None,
    expires_at: datetime | None = None,
    actor: str,
) -> NewKey:
    """Makes a key.

    Args:
        label: what it is for, at most 100 characters.
        models: the models it may use; None for all.

    Raises:
        NotFound: there is no such tenant, or it is deleted.
        Invalid: an argument makes no sense.
    """
    now = utc_now()
    if len(label) > MAX_LABEL_CHARS or not label.isprintable():
        raise Invalid(f"a label is at most {MAX_LABEL_CHARS} printable characters")
    if models is not None and (isinstance(models, str) or not models or not all(models)):
        raise Invalid("name at least one model that the key may use, or leave it out for all")
    if expires_at is not None and (expires_at.tzinfo is None or expires_at <= now):
        raise Invalid("the expiry must be in the future, and have a time zone")
    await changes.lock(tx)
    found = await get_live(tx, tenant)
    parts = key_format.new_parts()
    record = ApiKey(
        public_id=parts.public_id,
        tenant_id=found.id,
        label=label,
        models=None if models is None else frozenset(models),
        created_at=now,
        expires_at=expires_at,
    )
    await tx.execute(
        insert(ApiKeyRow).values(
            public_id=record.public_id,
            tenant_id=record.tenant_id,
            label=label,
            models=None if models is None else sorted(set(models)),
            mac=_mac(keyring, keyring.current_pepper, parts, found.id),
            pepper_version=keyring.current_pepper,
            created_at=now,
            expires_at=expires_at,
        )
    )
    await changes.bump(tx, changes.KEYS)
    detail: dict[str, Any] = {
        "tenant": str(found.id),
        "label": label,
        "models": None if models is None else sorted(set(models)),
        "expires_at": None if expires_at is None else expires_at.isoformat(),
    }
    await _record(tx, actor, "key.create", parts.public_id, detail)
    return NewKey(record, key_format.write(parts))


async def list_for(tx: AsyncSession, tenant: TenantRef) -> list[ApiKey]:
    """A tenant's keys, oldest first, the revoked ones included."""
    found = await get(tx, tenant)
    row = ApiKeyRow
    query = select(
        row.public_id,
        row.tenant_id,
        row.label,
        row.models,
        row.created_at,
        row.expires_at,
        row.revoked_at,
        row.last_used_at,
    )
    rows: Any = await tx.execute(
        query.where(row.tenant_id == found.id).order_by(row.created_at, row.public_id)
    )
    return [
        ApiKey(public_id, tenant_id, label, _model_set(models), *times)
        for public_id, tenant_id, label, models, *times in rows
    ]


async def revoke(tx: AsyncSession, public_id: str, *, actor: str) -> None:
    """Ends a key at once; again is no change.

    Raises:
        NotFound: there is no such key.
    """
    await changes.lock(tx)
    query = select(ApiKeyRow.tenant_id, ApiKeyRow.revoked_at)
    query = query.where(ApiKeyRow.public_id == public_id)
    findable = key_format.is_public_id(public_id)
    found = (await tx.execute(query)).one_or_none() if findable else None
    if found is None:
        # Not echoed: it may be a whole key, pasted by mistake.
        raise NotFound("there is no such key; `saltwall key list` shows the public ids")
    tenant_id, revoked_at = found
    if revoked_at is not None:
        return
    await _revoke(tx, tenant_id, public_id)
    await changes.bump(tx, changes.KEYS)
    await _record(tx, actor, "key.revoke", public_id, {"tenant": str(tenant_id)})


async def revoke_all(tx: AsyncSession, tenant_id: UUID) -> None:
    """Ends every key of a tenant; the caller bumps and records."""
    keys = select(ApiKeyRow.public_id).where(ApiKeyRow.tenant_id == tenant_id)
    await tx.execute(keys.order_by(ApiKeyRow.public_id).with_for_update())
    await _revoke(tx, tenant_id)


async def authenticate(
    tx: AsyncSession, keyring: Keyring, plaintext: str, *, now: datetime | None = None
) -> Principal | None:
    """Whose key this is; None for unknown, malformed, revoked and expired alike.

    An unknown id costs the same query, row, MAC and comparison as a wrong secret.

    Raises:
        KeyUnavailable: the keyring lacks the pepper of this key.
    """
    parts = key_format.read(plaintext)
    if parts is None:
        return None
    key, tenant = ApiKeyRow, TenantRow
    # One row in any case, of the same types: to read one takes longer than to find none.
    asked = select(literal(parts.public_id).label("id")).subquery()
    owner = func.coalesce(key.tenant_id, _NOBODY)
    query = (
        select(
            key.public_id,
            owner,
            func.coalesce(key.mac, bytes(32)),
            func.coalesce(key.pepper_version, keyring.current_pepper),
            key.models,
            key.expires_at,
            key.revoked_at,
            func.coalesce(tenant.name, ""),
            func.coalesce(tenant.status, "deleted"),
        )
        .select_from(asked)
        .outerjoin(key, key.public_id == asked.c.id)
        .outerjoin(tenant, tenant.id == owner)
    )
    row: Any = (await tx.execute(query)).one()
    found, tenant_id, mac, pepper, models, expires_at, revoked_at, name, status = row
    genuine = hmac.compare_digest(_mac(keyring, pepper, parts, tenant_id), mac)
    expired = expires_at is not None and expires_at <= (now or utc_now())
    if not genuine or found is None or revoked_at is not None or expired or status == "deleted":
        return None
    return Principal(tenant_id, name, status, parts.public_id, _model_set(models), expires_at)


async def touch(tx: AsyncSession, used: Mapping[str, datetime]) -> None:
    """Notes when keys were last used, by public id; several calls' worth at once."""
    if not used:
        return
    row = ApiKeyRow
    at: BindParameter[Any] = bindparam("at")
    older = or_(row.last_used_at.is_(None), row.last_used_at < at)
    statement = update(row).where(row.public_id == bindparam("key"), older).values(last_used_at=at)
    # In order of id, as `revoke_all` does: two transactions must not deadlock.
    keys = [{"key": public_id, "at": last} for public_id, last in sorted(used.items())]
    await (await tx.connection()).execute(statement, keys)


async def _revoke(tx: AsyncSession, tenant_id: UUID, public_id: str | None = None) -> None:
    statement = update(ApiKeyRow).where(
        ApiKeyRow.tenant_id == tenant_id, ApiKeyRow.revoked_at.is_(None)
    )
    if public_id is not None:
        statement = statement.where(ApiKeyRow.public_id == public_id)
    await tx.execute(statement.values(revoked_at=utc_now()))


def _mac(keyring: Keyring, pepper_version: int, parts: KeyParts, tenant_id: UUID) -> bytes:
    pepper = keyring.peppers.get(pepper_version)
    if pepper is None:
        raise KeyUnavailable(
            f"API keys need pepper {pepper_version}, which is not in gateway.json: restore the key"
            " file that belongs to this database"
        )
    message = cbor([parts.public_id, tenant_id.bytes, parts.secret])
    return hmac.new(pepper, message, hashlib.sha256).digest()


def _model_set(models: list[str] | None) -> frozenset[str] | None:
    return None if models is None else frozenset(models)


async def _record(
    tx: AsyncSession, actor: str, action: str, public_id: str, detail: dict[str, Any]
) -> None:
    await audit.record(tx, actor=actor, action=action, subject=f"key:{public_id}", detail=detail)
