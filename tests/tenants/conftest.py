"""What tests of the domain start from: secrets, a database, a tenant."""

from collections.abc import AsyncIterator

import pytest

from saltwall_tenants import tenants
from saltwall_tenants.database import Database
from saltwall_tenants.keyring import Keyring
from saltwall_tenants.tenants import Tenant


@pytest.fixture(scope="session")
def keyring(tmp_path_factory: pytest.TempPathFactory) -> Keyring:
    """A gateway's secrets."""
    return Keyring.create(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="session")
def other_keyring(tmp_path_factory: pytest.TempPathFactory) -> Keyring:
    """Another installation's secrets."""
    return Keyring.create(tmp_path_factory.mktemp("other-keys"))


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    """An open database, on each kind in turn."""
    database = Database(database_url)
    yield database
    await database.dispose()


@pytest.fixture
async def acme(db: Database, keyring: Keyring) -> Tenant:
    """A tenant, with its first salt."""
    async with db.transaction() as tx:
        return await tenants.create(tx, keyring, "acme", actor="cli:test")
