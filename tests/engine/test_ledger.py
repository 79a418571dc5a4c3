"""The ledger counts what the contract says, whatever the order of bookings."""

import itertools
from typing import Any

import pytest
from hypothesis import given, seed
from hypothesis import strategies as st
from properties import effort, seeds

from saltwall_engine.ledger import UNLIMITED, Account, Ledger, Quota, QuotaError

TOTAL = 24
TENANTS = "abcd"

quotas = st.tuples(st.integers(0, 8), st.integers(0, 12) | st.none()).map(
    lambda q: Quota(q[0], UNLIMITED if q[1] is None else q[0] + q[1])
)
bookings = st.lists(
    st.tuples(
        st.sampled_from(["take", "hit", "end", "end", "discard", "quota"]),
        st.sampled_from(TENANTS),
        st.integers(1, 6),
        st.integers(0, 6),
        quotas,
    ),
    max_size=60,
)


def claim(account: Account) -> int:
    """The blocks that no other tenant may take from this one."""
    return max(account.pinned, min(account.pinned + account.idle, account.reserve))


def takes(ledger: Ledger, account: Account, hits: int, ceiling: int) -> list[str]:
    """What the tenant can pin, one block after another, from where, until it must wait."""
    others = sum(claim(other) for other in ledger.accounts.values() if other is not account)
    pinned, idle = account.pinned, account.idle
    outside = ledger.total - others - pinned - idle
    done = []
    while pinned < ceiling:
        if hits and idle:
            done.append("hit")
            hits, idle = hits - 1, idle - 1
        elif pinned + idle < ceiling and outside:
            done.append("outside")
            outside -= 1
        elif idle and pinned + idle >= account.reserve:
            done.append("own")
            idle -= 1
        else:
            break
        pinned += 1
    return done


def carry_out(ledger: Ledger, account: Account, sources: list[str]) -> None:
    """Books such takes."""
    for source in sources:
        if source == "hit":
            ledger.pin(account, 1)
        elif source == "own":
            ledger.take_idle(account, account, 1)
        elif ledger.free:
            ledger.take_free(account, 1)
        else:
            victim = next(
                other
                for other in ledger.accounts.values()
                if other is not account and other.evictable
            )
            ledger.take_idle(account, victim, 1)


def book(ledger: Ledger, kind: str, tenant: str, blocks: int, hits: int, quota: Quota) -> None:
    """One booking, as far as it is possible."""
    account = ledger.account(tenant)
    if kind == "take":
        sources = takes(ledger, account, min(hits, blocks), account.ceiling)[:blocks]
        supply, draws = ledger.supply, account.draws(len(sources), sources.count("hit"))
        carry_out(ledger, account, sources)
        assert ledger.supply == supply - draws
    elif kind == "hit":
        most = max(0, min(blocks, account.idle, account.ceiling - account.pinned))
        ledger.pin(account, most)
    elif kind == "end":
        blocks = min(blocks, account.pinned)
        cached = max(0, min(hits, blocks))
        ledger.unpin(account, cached, blocks - cached)
    elif kind == "discard":
        ledger.discard(account, min(blocks, account.idle))
    else:
        reserved = sum(other.reserve for other in ledger.accounts.values() if other is not account)
        if reserved + quota.reserve > ledger.total:
            with pytest.raises(QuotaError, match=f"{reserved + quota.reserve} of {TOTAL} blocks"):
                ledger.set_quota(tenant, quota)
        else:
            before = account.ceiling
            ledger.set_quota(tenant, quota)
            if account.pinned > quota.ceiling:  # what was admitted may finish
                account.old_ceilings["admitted"] = max(account.pinned, before)


@pytest.mark.parametrize("number", seeds(3, 40))
def test_the_ledger_promises_what_can_be_carried_out(number: int) -> None:
    """A tenant is promised the pins that single takes by the contract's order add up to."""

    @seed(number)
    @effort(150, 3000)
    @given(bookings, st.integers(0, 30))
    def check(todo: list[Any], ceiling: int) -> None:
        ledger = Ledger(TOTAL)
        for booking in todo:
            book(ledger, *booking)
            ledger.check_integrity()
            claims = sum(claim(account) for account in ledger.accounts.values())
            assert ledger.supply == ledger.total - claims
            assert claims >= sum(
                min(account.held, account.reserve) for account in ledger.accounts.values()
            )
            for account in ledger.accounts.values():
                for hits in range(account.idle + 1):
                    pins = takes(ledger, account, hits, account.ceiling)
                    assert ledger.allowance(account, hits) == len(pins)
                    old = takes(ledger, account, hits, ceiling)
                    assert ledger.allowance(account, hits, ceiling) == len(old)
        for account in ledger.accounts.values():
            ledger.unpin(account, account.pinned, 0)
        ledger.forget_idle()
        ledger.check_integrity()
        assert (ledger.free, ledger.idle, ledger.evictable) == (TOTAL, 0, 0)

    check()


def test_what_pins_draw_from_the_supply_is_foreseen() -> None:
    """For every small account and every number of pins and hits among them."""
    for reserve, pinned, idle in itertools.product(range(8), range(5), range(5)):
        for pins, hits in itertools.product(range(9), range(idle + 1)):
            ledger = Ledger(TOTAL)
            account = ledger.set_quota("a", Quota(reserve))
            ledger.take_free(account, pinned + idle)
            ledger.unpin(account, idle, 0)
            sources = takes(ledger, account, hits, UNLIMITED)[: max(pins, hits)]
            supply, draws = ledger.supply, account.draws(len(sources), hits)
            carry_out(ledger, account, sources)
            assert ledger.supply == supply - draws, (reserve, pinned, idle, pins, hits)


@pytest.mark.parametrize(
    "field", ["pinned", "idle", "evictable", "reserve", "free", "reserved", "ceilings"]
)
def test_the_integrity_check_sees_any_count_that_is_off_by_one(field: str) -> None:
    """No count can be wrong without `check_integrity` saying so."""
    ledger = Ledger(TOTAL)
    account = ledger.set_quota("a", Quota(2, 10))
    ledger.take_free(account, 6)
    ledger.unpin(account, 4, 0)
    ledger.check_integrity()
    where: Any = ledger if hasattr(ledger, field) else account
    setattr(where, field, getattr(where, field) + 1)
    with pytest.raises(AssertionError):
        ledger.check_integrity()


def test_pins_above_the_ceiling_are_an_error_unless_admitted_before() -> None:
    """More pinned than the ceiling is right only while a request admitted under more is there."""
    ledger = Ledger(TOTAL)
    account = ledger.account("a")
    ledger.take_free(account, 6)
    ledger.set_quota("a", Quota(0, 5))
    with pytest.raises(AssertionError):
        ledger.check_integrity()
    account.old_ceilings["r"] = 6
    ledger.check_integrity()


def test_a_tenant_unheard_of_is_unlimited_and_owns_no_reserve() -> None:
    """Without a quota: reserve 0, no ceiling, weight 1, and it may store."""
    ledger = Ledger(TOTAL)
    assert ledger.account("x").quota == Quota(0, UNLIMITED, 1.0, True)
    assert ledger.allowance(ledger.account("x")) == TOTAL


@pytest.mark.parametrize(("reserve", "ceiling", "weight"), [(-1, 5, 1), (3, 2, 1), (0, 1, 0)])
def test_a_quota_that_makes_no_sense_is_refused(reserve: int, ceiling: int, weight: float) -> None:
    """A reserve below nothing or above its ceiling, or no weight at all."""
    with pytest.raises(QuotaError):
        Quota(reserve, ceiling, weight)


def test_reserves_beyond_the_pool_are_refused_and_nothing_changes() -> None:
    """The error names the sum and the pool; the tenant's terms stay as they were."""
    ledger = Ledger(TOTAL)
    ledger.set_quota("a", Quota(20))
    ledger.set_quota("b", Quota(3))
    with pytest.raises(QuotaError, match=r"25 of 24 blocks, 5 of them for b"):
        ledger.set_quota("b", Quota(5))
    assert ledger.account("b").reserve == 3
    ledger.set_quota("a", Quota(19))
    ledger.set_quota("b", Quota(5))
    ledger.check_integrity()


def test_someone_borrows_whenever_a_tenant_below_its_reserve_finds_nothing() -> None:
    """Nothing free or evictable, and a tenant below its reserve: another pins above its own."""
    ledger = Ledger(TOTAL)
    poor, rich = ledger.set_quota("poor", Quota(10)), ledger.set_quota("rich", Quota(14, 24))
    ledger.take_free(rich, TOTAL)
    assert ledger.allowance(poor) == 0
    assert rich.pinned > rich.reserve
