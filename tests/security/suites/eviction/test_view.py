"""What a tenant sees of a neighbour in its own evictions."""

import pytest
from block_server import BLOCK, BlockServer

from saltwall_security.prober import Prober
from saltwall_security.suite import Audit
from saltwall_security.suites.eviction.pool import Pool
from saltwall_security.suites.eviction.scale import Scale
from saltwall_security.suites.eviction.view import Spy, View


async def view(ceiling_blocks: int | None) -> View:
    """What the second tenant sees of the first, with a ceiling of its own or without."""
    server = BlockServer(keys={"key-one": "one", "key-two": "two"})
    pool = Pool(ceiling_blocks or server.blocks, BLOCK)
    if ceiling_blocks:
        account = server.pool.account("two")
        account.reserve = account.ceiling = ceiling_blocks
    async with (
        server.running(),
        Audit(server.target(), "salt", 60.0, lambda line: None) as audit,
    ):
        spy = Spy(audit, Prober(), Scale(pool, 1.0, BLOCK), audit.client(1))
        return await spy.watch(audit.client(0), rounds=2)


async def test_a_neighbours_prompts_show_in_borrowed_blocks() -> None:
    """Without a ceiling the spy loses what the neighbour needs: a residual, and documented."""
    seen = await view(None)
    assert seen.shows
    assert seen.lost > 0


@pytest.mark.parametrize("blocks", [48, 64])
async def test_a_neighbours_prompts_do_not_show_in_a_strict_tenants_blocks(blocks: int) -> None:
    """A ceiling that is its reserve: it finds as much after activity as after quiet."""
    seen = await view(blocks)
    assert not seen.shows
