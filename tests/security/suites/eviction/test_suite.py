"""The whole suite, on servers that keep reserves and servers that do not."""

import asyncio
from collections.abc import Mapping

import pytest
from block_server import BlockServer

from saltwall_security.check import Check, Verdict
from saltwall_security.suite import Audit
from saltwall_security.suites.eviction import run
from saltwall_security.suites.eviction.cast import FURTHER_KEYS, Cast, Promise, armed
from saltwall_security.suites.eviction.strategies import STRATEGIES

ENOUGH_S, SHORT_S = 60.0, 4.0
"""Where the pool's size is unknown, an attack takes all the time there is."""
KEYS = {"key-one": "one", "key-two": "two"}


def checks(server: BlockServer, seconds: float = ENOUGH_S, **access: bool) -> dict[str, Check]:
    """What the strongest attack finds, by the check's name."""

    async def audited() -> dict[str, Check]:
        async with (
            server.running(),
            Audit(server.target(**access), "salt", seconds, lambda line: None) as audit,
        ):
            found = run(audit, STRATEGIES[:1])
            return {check.id.removeprefix("eviction/"): check async for check in found}

    return asyncio.run(audited())


@pytest.fixture(scope="module")
def honest() -> tuple[BlockServer, Mapping[str, Check]]:
    """A platform that keeps reserves."""
    server = BlockServer(keys=dict(KEYS))
    return server, checks(server, operated=True)


@pytest.fixture(scope="module")
def careless() -> Mapping[str, Check]:
    """One that takes reserves, and evicts whatever was used the longest ago."""
    return checks(BlockServer(keys=dict(KEYS), keeps=False), operated=True)


@pytest.mark.parametrize("name", ["prefill", "starvation", "strict", "nothing-left"])
def test_what_is_kept_holds(honest: tuple[BlockServer, Mapping[str, Check]], name: str) -> None:
    """Each is a pass, with a control that saw something."""
    check = honest[1][name]
    assert check.verdict is Verdict.HELD, check


def test_the_tenants_that_it_has_created_are_gone(
    honest: tuple[BlockServer, Mapping[str, Check]],
) -> None:
    """The target's own tenants stay, and what they have cached."""
    assert sorted(honest[0].tenants()) == ["one", "two"]
    assert {honest[0].pool.account(name).generation for name in ("one", "two")} == {0}


async def test_keys_that_it_has_created_for_others_are_revoked() -> None:
    """A tenant of the target attacks with further keys, and has none of them afterwards."""
    server = BlockServer(keys=dict(KEYS))
    many = next(strategy for strategy in STRATEGIES if strategy.keys)
    async with (
        server.running(),
        Audit(server.target(operated=True), "salt", SHORT_S, lambda line: None) as audit,
    ):
        client = audit.client(1)
        cast = Cast(client, client, client, None, Promise.GIVEN)
        async with armed(audit, cast, many) as clients:
            assert len({client.tenant.key for client in clients}) == 1 + FURTHER_KEYS
        assert server.keys == KEYS


def test_no_key_is_in_a_check(honest: tuple[BlockServer, Mapping[str, Check]]) -> None:
    """Neither in its words nor in its figures."""
    assert not [key for key in honest[0].every_key if key in repr(honest[1])]


@pytest.mark.parametrize("name", ["prefill", "strict"])
def test_an_eviction_below_a_reserve_is_seen(careless: Mapping[str, Check], name: str) -> None:
    """In the hit rate, and in the strict tenant's sequence."""
    check = careless[name]
    assert check.verdict is Verdict.FAILED, check


def test_a_server_without_tenants_fails() -> None:
    """As stock vLLM: nothing bounds what one client evicts of another's."""
    found = checks(BlockServer(keeps=False), told=False)
    assert found["prefill"].verdict is Verdict.FAILED, found["prefill"]
    assert "does not tell its clients apart" in found["prefill"].advice
    assert found["strict"].verdict is Verdict.NOT_TESTED
    assert found["nothing-left"].verdict is Verdict.NOT_TESTED


@pytest.mark.parametrize("listed", [False, True])
def test_a_tenant_that_may_have_no_reserve_proves_nothing(listed: bool) -> None:
    """Without an operator a fall is no failure of a server that has tenants, whether or not it
    lists its models to everybody."""
    found = checks(BlockServer(keys=dict(KEYS), listed=listed), told=True)
    assert found["prefill"].verdict is Verdict.INCONCLUSIVE, found["prefill"]
    assert "does not know whether the victim has a reserve" in found["prefill"].advice


def test_a_tenant_that_was_given_a_reserve_holds_without_an_operator() -> None:
    """The control is then the attackers' own old prompt."""
    server = BlockServer(keys=dict(KEYS))
    server.pool.account("one").reserve = 64
    found = checks(server, told=True)
    assert found["prefill"].verdict is Verdict.HELD, found["prefill"]


def test_a_pool_that_is_too_large_for_the_flood_is_no_pass() -> None:
    """The exposed tenant has kept all: the attack had no teeth."""
    found = checks(BlockServer(1_000_000, keeps=False, tells=False), SHORT_S, told=False)
    assert found["prefill"].verdict is Verdict.INCONCLUSIVE, found["prefill"]


def test_without_cached_tokens_there_is_no_hit_rate() -> None:
    """Waiting is watched all the same."""
    found = checks(BlockServer(shown=False), told=False)
    assert found["hit-rate"].verdict is Verdict.NOT_TESTED
    assert found["starvation"].verdict is Verdict.HELD, found["starvation"]
