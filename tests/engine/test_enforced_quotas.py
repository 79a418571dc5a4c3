"""Quotas reach the ledger in blocks, and a refusal of them leaves all else in force."""

import json
from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import httpx
import pytest
from bare_core import ACME, GLOBEX, Core, grant
from hypothesis import given, settings
from hypothesis import strategies as st

from saltwall_tenants.wire import (
    Amount,
    Authorisation,
    Capacity,
    EngineKeys,
    Lease,
    Policy,
    Quota,
    Quotas,
    WireError,
)

BLOCKS = 63
ALLOWED = {ACME: frozenset({1, 2}), GLOBEX: frozenset({1, 2})}
EVERYONE = Authorisation(1, ALLOWED)


def quota(reserve: str = "0", ceiling: str | None = None, **fields: Any) -> Quota:
    """A quota of written amounts."""
    return Quota(Amount.parse(reserve), ceiling and Amount.parse(ceiling), **fields)  # type: ignore[arg-type]


def policy(quotas: Any = None, authorisation: Authorisation = EVERYONE) -> Policy:
    """A push."""
    return Policy("demo", Lease(60), authorisation, quotas)


class Rig:
    """An API process's state over vLLM's scheduler, its control routes, and what the core heard."""

    def __init__(self, core: Core, keys: EngineKeys) -> None:
        from fastapi import FastAPI

        from saltwall_engine import control
        from saltwall_engine.api_state import ApiState

        self.core = core
        self.calls: list[list[Any]] = []
        self.state = ApiState(keys, self)
        app = FastAPI()
        app.state.saltwall = self.state
        app.include_router(control.router)
        transport = httpx.ASGITransport(app)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://engine")

    async def call_utility_async(self, name: str, *args: Any) -> Any:
        """Passes a call on."""
        if name == "saltwall_set_quotas":
            self.calls.append(list(args[0]))
        return await self.core.call_utility_async(name, *args)

    async def put(self, sent: Policy | bytes) -> Any:
        """Pushes over HTTP; what the engine says of the quotas."""
        body = sent if isinstance(sent, bytes) else sent.encode()
        response = await self.client.put("/saltwall/v1/policy", content=body)
        assert response.status_code == 200, response.text
        assert response.json()["authorisation_epoch"] == EVERYONE.epoch
        return response.json()["quotas"]

    def terms(self, tenant: UUID) -> tuple[int, int | None, float, bool]:
        """What the ledger holds a tenant to."""
        from saltwall_engine.ledger import UNLIMITED

        terms = self.core.scheduler.ledger.account(tenant)
        ceiling = None if terms.ceiling == UNLIMITED else terms.ceiling
        return terms.reserve, ceiling, terms.weight, terms.store


@pytest.fixture
async def rig(make_core: Any, engine_keys: EngineKeys) -> AsyncIterator[Rig]:
    """A pool of 63 blocks, attested."""
    made = Rig(make_core(), engine_keys)
    await made.state.attest()
    async with made.client:
        yield made


DEFAULT = (0, None, 1.0, True)


async def test_quotas_reach_the_ledger_in_blocks(rig: Rig) -> None:
    """Per cent, tokens, strict, weight and store; a tenant without a quota has the default."""
    section = Quotas(
        7,
        {
            ACME: quota("30%", "640 tokens", weight=Decimal("2.5")),
            GLOBEX: quota("20%", strict=True, store=False),
        },
    )
    assert await rig.put(policy(section)) == {"epoch": 7}
    assert rig.terms(ACME) == (18, 40, 2.5, True)
    assert rig.terms(GLOBEX) == (12, 12, 1.0, False)
    assert rig.terms(UUID(int=1)) == DEFAULT


async def test_a_tenant_that_is_no_longer_named_has_the_default_again(rig: Rig) -> None:
    """Its reserve is free for others at once."""
    await rig.put(policy(Quotas(1, {ACME: quota("100%", weight=Decimal(3), store=False)})))
    assert await rig.put(policy(Quotas(2, {GLOBEX: quota("100%")}))) == {"epoch": 2}
    assert rig.terms(ACME) == DEFAULT
    assert rig.terms(GLOBEX)[0] == BLOCKS


async def test_lowered_ceilings_are_in_force_on_an_idle_engine(rig: Rig) -> None:
    """Of several tenants at once, without a step: what they hold above them is evicted."""
    for number, tenant in enumerate((ACME, GLOBEX)):
        rig.core.serve(rig.core.request([number] * 20 * 16, grant(tenant)))
    section = Quotas(1, {ACME: quota("0", "3 blocks"), GLOBEX: quota("0", "4 blocks")})
    await rig.put(policy(section))
    ledger = rig.core.scheduler.ledger
    assert (ledger.account(ACME).held, ledger.account(GLOBEX).held) == (3, 4)


async def test_only_what_changed_is_told(rig: Rig) -> None:
    """The scheduler's thread hears of one tenant, not of all; the same section costs no call."""
    before = {UUID(int=i): quota("1 block") for i in range(1, 31)}
    await rig.put(policy(Quotas(1, before)))
    rig.calls.clear()
    await rig.put(policy(Quotas(1, before)))
    assert rig.calls == []
    await rig.put(policy(Quotas(2, before | {UUID(int=7): quota("2 blocks")})))
    assert rig.calls == [[[UUID(int=7).hex, 2, None, 1.0, True]]]


async def test_without_a_section_the_quotas_stay(rig: Rig) -> None:
    """A gateway of the release before renews the lease and changes no quota."""
    await rig.put(policy(Quotas(5, {ACME: quota("50%")})))
    assert await rig.put(policy()) == {"epoch": 5}
    assert rig.terms(ACME)[0] == 31


@pytest.mark.parametrize(
    ("section", "words", "reason"),
    [
        (Quotas(4, {}), "4 after 5", "stale_epoch"),
        (Quotas(5, {}), "two documents", "epoch_conflict"),
        (Quotas(6, {ACME: quota("40"), GLOBEX: quota("24")}), "64 of 63 blocks", "quota"),
        (Quotas(6, {ACME: quota("50%", "4")}), f"tenant {ACME}: the ceiling 4 blocks", "quota"),
        (Quotas(6, {ACME: quota("1GiB")}), "does not know the size of a block", "quota"),
    ],
)
async def test_refused_quotas_leave_the_rest_in_force(
    rig: Rig, section: Quotas, words: str, reason: str
) -> None:
    """200, who may use the engine is in force, the lease runs, the quotas are those before."""
    await rig.put(policy(Quotas(5, {ACME: quota("50%")})))
    rig.state._lease_until = 0.0
    told = await rig.put(policy(section))
    assert words in told["refused"]
    assert (told["reason"], told["epoch_in_force"]) == (reason, 5)
    rig.state.check_ready()
    assert rig.terms(ACME) == (31, None, 1.0, True)
    assert rig.terms(GLOBEX) == DEFAULT
    assert (await rig.state.usage())["alarms"]["quotas"] == 1


async def test_malformed_quotas_delay_no_revocation(rig: Rig) -> None:
    """A suspension beside rubbish: the tenant is out, its request aborted, the answer 200."""
    await rig.put(policy(Quotas(5, {ACME: quota("50%")})))
    request = rig.core.request(list(range(20)), grant(GLOBEX))
    rig.core.scheduler.add_request(request)
    document = json.loads(policy(authorisation=Authorisation(2, {ACME: frozenset({1})})).encode())
    document["quotas"] = {"epoch": 6, "tenants": "all of them"}
    response = await rig.client.put("/saltwall/v1/policy", content=json.dumps(document))
    assert response.status_code == 200
    assert response.json()["authorisation_epoch"] == 2
    assert response.json()["quotas"]["reason"] == "malformed"
    assert rig.core.refused == [request.request_id]
    with pytest.raises(WireError, match="unknown_tenant"):
        rig.state.authorisation.check(GLOBEX, 1)
    assert rig.terms(ACME)[0] == 31


async def test_a_stale_policy_changes_no_quotas(rig: Rig) -> None:
    """What is refused as a whole is refused whole."""
    await rig.put(policy(Quotas(5, {ACME: quota("50%")})))
    older = policy(Quotas(6, {}), Authorisation(EVERYONE.epoch, {}))
    response = await rig.client.put("/saltwall/v1/policy", content=older.encode())
    assert response.status_code == 409
    assert rig.terms(ACME)[0] == 31


async def test_ten_thousand_tenants_swap_a_full_pool_in_slices(
    make_core: Any, engine_keys: EngineKeys
) -> None:
    """All blocks are reserved before and after, by others: at no step is more promised than is."""
    rig = Rig(make_core(blocks=5001), engine_keys)
    await rig.state.attest()
    half = {UUID(int=i): quota("1 block") for i in range(1, 5001)}
    other = {UUID(int=i): quota("1 block") for i in range(5001, 10001)}
    assert await rig.put(policy(Quotas(1, half))) == {"epoch": 1}
    assert await rig.put(policy(Quotas(2, other))) == {"epoch": 2}
    assert rig.core.scheduler.ledger.reserved == 5000
    assert max(map(len, rig.calls)) <= 200
    rig.core.scheduler.ledger.check_integrity()
    await rig.client.aclose()


async def test_a_core_that_fails_half_way_is_told_again(rig: Rig, monkeypatch: Any) -> None:
    """The push says so and renews the lease; the same section, pushed again, is applied whole."""
    from saltwall_engine import enforced_quotas, engine_core

    monkeypatch.setattr(enforced_quotas, "CHANGES_PER_CALL", 1)
    await rig.put(policy(Quotas(1, {ACME: quota("60 blocks"), GLOBEX: quota("3 blocks")})))
    stock, left = engine_core.saltwall_set_quotas, [1]

    def fail_after(self: Any, changes: Any) -> None:
        if not left:
            raise RuntimeError("the engine core is busy dying")
        left.pop()
        stock(self, changes)

    swapped = Quotas(2, {ACME: quota("3 blocks"), GLOBEX: quota("60 blocks")})
    with monkeypatch.context() as broken:
        broken.setattr(engine_core, "saltwall_set_quotas", fail_after)
        told = await rig.put(policy(swapped))
    assert (told["reason"], told["epoch_in_force"]) == ("failed", 1)
    rig.state.check_ready()
    assert await rig.put(policy(swapped)) == {"epoch": 2}
    assert (rig.terms(ACME)[0], rig.terms(GLOBEX)[0]) == (3, 60)


async def test_a_request_can_count_on_what_the_reserves_of_others_leave(rig: Rig) -> None:
    """Its own reserve included, its ceiling not exceeded; and as for the scheduler itself."""
    nobody = UUID(int=1)
    assert rig.state.quotas.limit(nobody) == BLOCKS
    section = Quotas(1, {ACME: quota("40 blocks"), GLOBEX: quota("13 blocks", "20 blocks")})
    await rig.put(policy(section))
    limits = {tenant: rig.state.quotas.limit(tenant) for tenant in (ACME, GLOBEX, nobody)}
    assert limits == {ACME: 50, GLOBEX: 20, nobody: 10}
    scheduler = rig.core.scheduler
    assert limits == {t: scheduler.ledger.limit(scheduler.ledger.account(t)) for t in limits}


async def test_while_quotas_are_applied_those_before_count(rig: Rig, monkeypatch: Any) -> None:
    """No request is refused for a reserve that is on its way from one tenant to another."""
    await rig.put(policy(Quotas(1, {ACME: quota("60 blocks")})))
    seen = []
    stock = rig.core.call_utility_async

    async def look(name: str, *args: Any) -> Any:
        if name == "saltwall_set_quotas":
            seen.append(rig.state.quotas.limit(ACME))
        return await stock(name, *args)

    monkeypatch.setattr(rig.core, "call_utility_async", look)
    await rig.put(policy(Quotas(2, {ACME: quota("50 blocks")})))
    assert seen == [BLOCKS]
    assert rig.state.quotas.limit(ACME) == BLOCKS


reserves = st.dictionaries(st.integers(1, 6), st.integers(0, BLOCKS), max_size=6).filter(
    lambda found: sum(found.values()) <= BLOCKS
)


@settings(max_examples=200, deadline=None)
@given(reserves, reserves, st.sets(st.integers(0, 8)))
async def test_any_change_that_fits_is_taken_whatever_failed_before(
    before: dict[int, int], after: dict[int, int], failures: set[int]
) -> None:
    """From any reserves to any others, through failing calls: never more promised than is."""
    from saltwall_engine.enforced_quotas import EnforcedQuotas
    from saltwall_engine.ledger import UNLIMITED, Ledger
    from saltwall_engine.ledger import Quota as Terms

    ledger, calls = Ledger(BLOCKS), iter(range(1000))

    async def call(_name: str, changes: Sequence[Any] = ()) -> None:
        for tenant, reserve, ceiling, weight, store in changes:
            if next(calls) in failures:
                raise RuntimeError
            ceiling = UNLIMITED if ceiling is None else ceiling
            ledger.set_quota(tenant, Terms(reserve, ceiling, weight, store))

    enforced = EnforcedQuotas(Capacity(BLOCKS, 16), call)
    for epoch, wanted in enumerate((before, after, after), 1):
        section = Quotas(epoch, {UUID(int=t): quota(f"{r} blocks") for t, r in wanted.items()})
        while "refused" in await enforced.apply(section):
            assert next(calls) < 20, "only the failures may refuse"
        held = {UUID(hex=str(t)).int: a.reserve for t, a in ledger.accounts.items() if a.reserve}
        assert held == {t: r for t, r in wanted.items() if r}
