"""A cached block is served to its owner alone, whatever its hash."""

from typing import Any

import pytest
from bare_core import ACME, BLOCK, GLOBEX, grant

PROMPT = list(range(BLOCK * 6 + 3))


def colliding(request: Any) -> list[bytes]:
    """A block hasher under which every tenant's block i has one hash: a forced collision."""
    have = len(request.block_hashes)
    return [bytes([i]) * 32 for i in range(have, request.num_tokens // BLOCK)]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_repeat_hits_within_the_tenant_only(make_core: Any, asynchronous: bool) -> None:
    """acme's repeat is cached, globex's first use is not, globex's own repeat is."""
    core = make_core(asynchronous=asynchronous)
    assert core.serve(core.request(PROMPT, grant(ACME))) == 0
    assert core.serve(core.request(PROMPT, grant(ACME))) == BLOCK * 6
    assert core.serve(core.request(PROMPT, grant(GLOBEX))) == 0
    assert core.serve(core.request(PROMPT, grant(GLOBEX))) == BLOCK * 6
    core.scheduler.kv_cache_manager.block_pool.check_integrity()


def test_a_hash_collision_does_not_cross_tenants(make_core: Any) -> None:
    """Two tenants forced onto one hash: the second gets a miss, and the alarm counts it."""
    core = make_core()
    pool = core.scheduler.kv_cache_manager.block_pool
    assert core.serve(core.request(PROMPT, grant(ACME), hasher=colliding)) == 0
    assert core.serve(core.request(PROMPT, grant(GLOBEX), hasher=colliding)) == 0
    assert pool.ownership_mismatches > 0
    pool.check_integrity()


def test_stock_serves_a_hash_collision_across_tenants(make_core: Any) -> None:
    """The same two requests on stock vLLM's scheduler: the second tenant is served the first's."""
    from vllm.v1.core.sched.scheduler import Scheduler

    core = make_core(Scheduler)
    assert core.serve(core.request(PROMPT, grant(ACME), hasher=colliding)) == 0
    assert core.serve(core.request(PROMPT, grant(GLOBEX), hasher=colliding)) == BLOCK * 6


def test_generations_do_not_share_even_on_a_collision(make_core: Any) -> None:
    """A block of an old salt generation is not served to the new one."""
    core = make_core()
    core.serve(core.request(PROMPT, grant(ACME, 1), hasher=colliding))
    assert core.serve(core.request(PROMPT, grant(ACME, 2), hasher=colliding)) == 0


async def test_purge_unhashes_one_tenant(make_core: Any) -> None:
    """After a purge the tenant's prefix is gone, the other's stays, and the pool adds up."""
    core = make_core()
    for tenant in (ACME, GLOBEX):
        core.serve(core.request(PROMPT, grant(tenant)))
    owners = await core.call_utility_async("saltwall_owners", ACME.hex)
    done, left = 0, 1
    while left:
        now, left = await core.call_utility_async("saltwall_purge", owners)
        done += now
    assert done == 6
    assert core.serve(core.request(PROMPT, grant(ACME))) == 0
    assert core.serve(core.request(PROMPT, grant(GLOBEX))) == BLOCK * 6
    core.scheduler.kv_cache_manager.block_pool.check_integrity()


def test_eviction_forgets_the_owner(make_core: Any) -> None:
    """Blocks recycled for other prompts change owner with their content."""
    core = make_core()
    pool = core.scheduler.kv_cache_manager.block_pool
    core.serve(core.request(PROMPT, grant(ACME)))
    for i in range(20):
        prompt = [i + 100] * len(PROMPT)
        core.serve(core.request(prompt, grant(GLOBEX)))
        pool.check_integrity()
    assert pool.ledger.account(ACME).held == 0
    assert core.serve(core.request(PROMPT, grant(ACME))) == 0


def test_reset_forgets_all_owners(make_core: Any) -> None:
    """vLLM's own reset leaves neither hashes nor owners."""
    core = make_core()
    core.serve(core.request(PROMPT, grant(ACME)))
    core.scheduler.reset_prefix_cache()
    pool = core.scheduler.kv_cache_manager.block_pool
    assert pool.ledger.free == pool.ledger.total
    pool.check_integrity()


def test_nothing_is_cached_for_an_owner_that_lost_its_grant(make_core: Any) -> None:
    """Blocks that a request fills after its generation was revoked never become reachable."""
    core = make_core()
    pool = core.scheduler.kv_cache_manager.block_pool
    pool.may_cache = lambda owner: owner.tenant != ACME
    core.serve(core.request(PROMPT, grant(ACME)))
    core.serve(core.request(PROMPT, grant(GLOBEX)))
    assert pool.ledger.account(ACME).held == 0
    assert pool.ledger.account(GLOBEX).idle == 6
