"""The two tenants that a new installation begins with."""

from typing import Final

from saltwall_tenants import api_keys, tenants
from saltwall_tenants.database import Database
from saltwall_tenants.keyring import Keyring

NAMES: Final = ("acme", "globex")
ACTOR: Final = "cli:up"


async def create(database: Database, keyring: Keyring) -> bool:
    """Makes them if there has never been a tenant; whether it did."""
    async with database.transaction() as tx:
        if await tenants.list_all(tx, deleted=True):
            return False
        for name in NAMES:
            await tenants.create(tx, keyring, name, actor=ACTOR)
    return True


async def first_keys(database: Database, keyring: Keyring) -> dict[str, str]:
    """Makes a key for each of them that never had one; the plaintexts by tenant.

    Made last, when all runs: a key is shown once, and a failed start would have lost it.
    """
    made: dict[str, str] = {}
    async with database.transaction() as tx:
        present = {tenant.name for tenant in await tenants.list_all(tx)}
        for name in NAMES:
            if name in present and not await api_keys.list_for(tx, name):
                key = await api_keys.create(tx, keyring, name, label="demo", actor=ACTOR)
                made[name] = key.plaintext
    return made
