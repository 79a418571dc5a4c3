"""Fixtures: a world with two tenants and an engine that tests script, and a gateway in it."""

import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package: this finds their parts

from gateway_world import World, answer_like_vllm
from scripted_engine import ScriptedEngine

from saltwall_tenants import api_keys, tenants
from saltwall_tenants.database import Database
from saltwall_tenants.keyring import Keyring


@pytest.fixture
async def world(tmp_path: Path, migrated_sqlite: Path) -> AsyncIterator[World]:
    """A world without a gateway yet: database, keys, tenants, and an engine that listens."""
    shutil.copy(migrated_sqlite, tmp_path / "saltwall.db")
    keyring = Keyring.create(tmp_path / "keys")
    database = Database(f"sqlite:///{tmp_path / 'saltwall.db'}")
    async with database.transaction() as tx:
        acme = await tenants.create(tx, keyring, "acme", actor="test")
        globex = await tenants.create(tx, keyring, "globex", actor="test")
        acme_key = await api_keys.create(tx, keyring, acme, actor="test")
        globex_key = await api_keys.create(tx, keyring, globex, actor="test")
    engine = ScriptedEngine(keyring.ticket_root.engine_keys("demo"), answer_like_vllm)
    await engine.start()
    yield World(tmp_path, keyring, database, engine, acme, globex, acme_key, globex_key)
    await engine.stop()
    await database.dispose()


@pytest.fixture
async def up(world: World) -> AsyncIterator[World]:
    """The same with a gateway that is ready."""
    async with world.running():
        yield world
