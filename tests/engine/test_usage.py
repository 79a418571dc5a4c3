"""Usage tells what each tenant holds, is held to and waits for, a page at a time."""

import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from bare_core import ACME, BLOCK, GLOBEX, grant

README = Path(__file__).parents[2] / "engine" / "README.md"
PROMPT = list(range(BLOCK * 6 + 3))


@pytest.fixture
async def engine(make_core: Any, engine_keys: Any) -> Any:
    """An API process's state and the core behind it."""
    from saltwall_engine.api_state import ApiState

    core = make_core()
    state = ApiState(engine_keys, core)
    await state.attest()
    return state, core


async def test_a_tenants_account_is_told(engine: Any) -> None:
    """Hits and misses in tokens, blocks held, and the terms: the same numbers as the ledger's."""
    state, core = engine
    await core.call_utility_async("saltwall_set_quotas", [[ACME.hex, 9, 40, 2.5, True]])
    assert [core.serve(core.request(PROMPT, grant(ACME))) for _ in range(2)] == [0, BLOCK * 6]
    told = (await state.usage())["tenants"][ACME.hex]
    assert told == {
        "pinned": 0,
        "idle": 6,
        "held": 6,
        "reserve": 9,
        "ceiling": 40,
        "weight": 2.5,
        "store": True,
        "running": 0,
        "waiting": 0,
        "waiting_age_s": 0.0,
        "hit_tokens": BLOCK * 6,
        "missed_tokens": len(PROMPT) * 2 - BLOCK * 6,
        "evictions_caused": 0,
        "evictions_suffered": 0,
        "preemptions_caused": 0,
        "preemptions_suffered": 0,
    }


async def test_no_ceiling_is_null(engine: Any) -> None:
    """A tenant that nobody bounded is not bounded by a number."""
    state, core = engine
    core.serve(core.request(PROMPT, grant(GLOBEX)))
    assert (await state.usage())["tenants"][GLOBEX.hex]["ceiling"] is None


async def test_what_waits_longest_has_its_age(engine: Any) -> None:
    """Of two requests that wait, the age is the older one's; one that runs has none."""
    state, core = engine
    await core.call_utility_async("saltwall_set_quotas", [[ACME.hex, 0, 8, 1.0, True]])
    core.scheduler.add_request(core.request(PROMPT, grant(ACME)))
    core.scheduler.schedule()
    for age in (100, 50):
        request = core.request(PROMPT[::-1], grant(ACME))
        request.arrival_time = time.time() - age
        core.scheduler.add_request(request)
    core.scheduler.schedule()
    told = (await state.usage())["tenants"][ACME.hex]
    assert (told["running"], told["waiting"]) == (1, 2)
    assert 100 <= told["waiting_age_s"] < 200
    assert (await state.usage())["requests"] == {"running": 1, "waiting": 2}


async def test_evictions_have_two_sides(engine: Any) -> None:
    """What globex's prompt replaces of acme's cache is in both accounts."""
    state, core = engine
    for tenant, tokens in ((ACME, range(480)), (GLOBEX, range(500, 980)), (GLOBEX, range(100))):
        core.serve(core.request(list(tokens), grant(tenant)))
    told = (await state.usage())["tenants"]
    assert told[ACME.hex]["evictions_suffered"] == told[GLOBEX.hex]["evictions_caused"] > 0


async def test_the_pool_is_told(engine: Any) -> None:
    """Free and idle blocks apart, what others could take of the idle ones, and the capacity."""
    state, core = engine
    await core.call_utility_async("saltwall_set_quotas", [[ACME.hex, 4, None, 1.0, True]])
    core.serve(core.request(PROMPT, grant(ACME)))
    told = await state.usage()
    assert told["blocks"] == {"total": 63, "free": 57, "idle": 6, "evictable": 2, "reserved": 4}
    assert told["capacity"] == {
        "blocks": 63,
        "block_tokens": BLOCK,
        "block_bytes": None,
        "groups": 1,
    }
    assert told["quotas"] == {"epoch": None}


async def test_the_schedulers_alarms_are_told(engine: Any) -> None:
    """Each kind is explained, and there from the start, where a rate begins; all are passed on."""
    state, core = engine
    told = (await state.usage())["alarms"]
    assert told == {
        "ownership_mismatch": 0,
        "in_loop_shortfall": 0,
        "admission_shortfall": 0,
        "not_erased": 0,
        "policy": 0,
        "quotas": 0,
    }
    assert [kind for kind in told if f"`{kind}`" not in README.read_text()] == []
    core.scheduler.alarms.update(in_loop_shortfall=2, something_new=1)
    alarms = (await state.usage())["alarms"]
    assert (alarms["in_loop_shortfall"], alarms["something_new"]) == (2, 1)


@pytest.mark.parametrize("tenants", [0, 1, 249, 250, 251, 1000])
async def test_pages_are_joined(engine: Any, tenants: int) -> None:
    """Every tenant once, in whatever number of pages."""
    state, core = engine
    changes = [[UUID(int=i + 1).hex, 0, i, 1.0, True] for i in range(tenants)]
    await core.call_utility_async("saltwall_set_quotas", changes)
    told = (await state.usage())["tenants"]
    assert {tenant: row["ceiling"] for tenant, row in told.items()} == {
        tenant: ceiling for tenant, _, ceiling, *_ in changes
    }
