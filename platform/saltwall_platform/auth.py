"""Who is asking: an API key to a principal, remembered for as long as nothing changed."""

import asyncio
import hashlib
from dataclasses import dataclass, field

import structlog
from starlette.datastructures import Headers

from saltwall_platform.bounded import Bounded
from saltwall_platform.errors import invalid_key, missing_key, suspended, unavailable
from saltwall_platform.freshness import DATABASE_ERRORS, LOOKUP_TIMEOUT_S, Freshness
from saltwall_tenants import api_keys
from saltwall_tenants.api_keys import Principal
from saltwall_tenants.clock import utc_now
from saltwall_tenants.database import Database
from saltwall_tenants.keyring import Keyring

REMEMBERED = 10_000
MAX_KEY_CHARS = 200

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Caller:
    """A principal, the key that proved it, and the version of the database it was true for."""

    principal: Principal
    presented: str = field(repr=False)
    version: int


class Authenticator:
    """Looks keys up, and remembers the answers, the refusals apart so that they crowd nobody out.

    What is remembered is dropped on every change of keys or tenants, and never used when the
    database has not been seen for a second.
    """

    def __init__(self, database: Database, keyring: Keyring, freshness: Freshness) -> None:
        self._database = database
        self._keyring = keyring
        self._freshness = freshness
        self._known: Bounded[bytes, Principal] = Bounded(REMEMBERED)
        self._refused: Bounded[bytes, bool] = Bounded(REMEMBERED)
        freshness.listen(self._forget)

    async def caller(self, headers: Headers) -> Caller:
        """Who sent these headers.

        Raises:
            ApiError: 401 without a good key, 403 when the tenant is suspended, 503 when that
                cannot be found out.
        """
        presented = _bearer(headers)
        await self._freshness.ensure()
        return await self.check(presented)

    async def check(self, presented: str) -> Caller:
        """The caller who holds this key now; raises as `caller` does."""
        version = self._freshness.version
        principal = await self._lookup(presented, version)
        if principal is None or has_expired(principal):
            raise invalid_key()
        if principal.tenant_status != "active":
            raise suspended()
        return Caller(principal, presented, version)

    async def _lookup(self, presented: str, version: int) -> Principal | None:
        digest = hashlib.sha256(presented.encode()).digest()
        principal = self._known.get(digest)
        if principal is not None or self._refused.get(digest):
            return principal
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S), self._database.snapshot() as tx:
                principal = await api_keys.authenticate(tx, self._keyring, presented)
        except DATABASE_ERRORS as error:
            log.error("an API key could not be checked", error=type(error).__name__)
            raise unavailable("Keys cannot be checked.", "database_unavailable") from None
        if version == self._freshness.version:  # else it may be out of date already
            if principal is None:
                self._refused.put(digest, True)
            else:
                self._known.put(digest, principal)
        return principal

    def _forget(self, _sections: frozenset[str]) -> None:
        self._known.clear()
        self._refused.clear()


def has_expired(principal: Principal) -> bool:
    """Whether its key's time is over."""
    return principal.expires_at is not None and principal.expires_at <= utc_now()


def _bearer(headers: Headers) -> str:
    values = headers.getlist("authorization")
    if not values:
        raise missing_key()
    scheme, _, presented = values[0].partition(" ")
    presented = presented.strip()
    if len(values) > 1 or scheme.lower() != "bearer":
        raise invalid_key()
    if not presented.isascii() or len(presented) > MAX_KEY_CHARS:
        raise invalid_key()
    return presented
