"""Fixtures: a world with two tenants and an engine that tests script, and a gateway in it."""

import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package: this finds their parts

from gateway_world import World, new_world


@pytest.fixture
async def world(tmp_path: Path, migrated_sqlite: Path) -> AsyncIterator[World]:
    """A world without a gateway yet: database, keys, tenants, and an engine that listens."""
    shutil.copy(migrated_sqlite, tmp_path / "saltwall.db")
    async with new_world(tmp_path, f"sqlite:///{tmp_path / 'saltwall.db'}") as made:
        yield made


@pytest.fixture
async def up(world: World) -> AsyncIterator[World]:
    """The same with a gateway that is ready."""
    async with world.running():
        yield world
