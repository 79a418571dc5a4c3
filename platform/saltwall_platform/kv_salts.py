"""The KV salts of tenants, derived once and kept until anything about salts changes."""

import asyncio
from dataclasses import dataclass, field
from uuid import UUID

import structlog

from saltwall_platform.bounded import Bounded
from saltwall_platform.errors import suspended, unavailable
from saltwall_platform.freshness import DATABASE_ERRORS, LOOKUP_TIMEOUT_S, Freshness
from saltwall_tenants import salts
from saltwall_tenants.changes import AUTHORISATION
from saltwall_tenants.database import Database
from saltwall_tenants.errors import NotFound
from saltwall_tenants.keyring import Keyring
from saltwall_tenants.salts import SaltSecret
from saltwall_tenants.wire import derive_kv_salt

REMEMBERED = 10_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class KvSalt:
    """The 32 bytes that go into a tenant's block hashes, and the generation they are of."""

    generation: int
    salt: bytes = field(repr=False)


class KvSalts:
    """Derives salts for (tenant, deployment, scope) from the tenant's current secret.

    Scopes are the clients' to choose, so what is kept is bounded.
    """

    def __init__(self, database: Database, keyring: Keyring, freshness: Freshness) -> None:
        self._database = database
        self._keyring = keyring
        self._freshness = freshness
        self._secrets: Bounded[UUID, SaltSecret] = Bounded(REMEMBERED)
        self._salts: Bounded[tuple[UUID, int, str, str], KvSalt] = Bounded(REMEMBERED)
        freshness.listen(self._forget)

    async def get(self, tenant: UUID, name: str, scope: str) -> KvSalt:
        """The salt of the tenant's current generation.

        Raises:
            ApiError: 503, the database does not answer; 403, the tenant has been deleted.
        """
        secret = self._secrets.get(tenant) or await self._read(tenant)
        key = (tenant, secret.generation, name, scope)
        salt = self._salts.get(key)
        if salt is None:
            derived = derive_kv_salt(secret.secret, name, scope)
            salt = KvSalt(secret.generation, derived)
            self._salts.put(key, salt)
        return salt

    async def _read(self, tenant: UUID) -> SaltSecret:
        version = self._freshness.version
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S), self._database.snapshot() as tx:
                secret = await salts.current_secret(tx, self._keyring, tenant)
        except NotFound:
            raise suspended() from None
        except DATABASE_ERRORS as error:
            log.error("a tenant's salt could not be read", error=type(error).__name__)
            raise unavailable("Requests cannot be sealed.", "database_unavailable") from None
        if version == self._freshness.version:  # else it may be out of date already
            self._secrets.put(tenant, secret)
        return secret

    def _forget(self, sections: frozenset[str]) -> None:
        if AUTHORISATION in sections:
            self._secrets.clear()
            self._salts.clear()
