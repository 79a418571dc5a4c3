"""A strict tenant amid others in vLLM's own scheduler fares as if it were alone.

With one request in flight that holds end to end: each of its requests finds as many cached tokens,
and its blocks are evicted in the same order. With any number in flight others can change the order
of its pool operations, and it holds of those: the same operations alone do the same.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, ClassVar
from uuid import UUID

import pytest
from bare_core import BLOCK
from engine_life import TENANTS, EngineLife, quotas, requests
from fake_engine import FakeEngine
from hypothesis import given, seed
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from pool_recording import Recording, record, replay
from pool_twin import new_pool
from properties import effort, run_machine, seeds

from saltwall_engine.ledger import UNLIMITED, Quota, QuotaError

VICTIM, OTHERS = TENANTS[0], TENANTS[1:]
ASYNC = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


class Amid(EngineLife):
    """The victim's requests among everybody's, its pool operations recorded."""

    ceiling: ClassVar[int | None] = None
    """The victim's, if not its reserve."""
    reset = evict_blocks = None
    """Acts of an operator on everybody's cache."""

    @initialize(
        blocks=st.sampled_from([13, 21, 33]),
        running=st.sampled_from([2, 4, 8]),
        step_tokens=st.sampled_from([64, 128, 512]),
        window=st.sampled_from([None, None, 40]),
        reserve=st.integers(2, 8),
        others=st.lists(quotas, min_size=3, max_size=3),
    )
    def start(self, reserve: int, others: list[Quota], **shape: Any) -> None:
        super().start(given=[], **shape)
        self.quota = Quota(reserve, reserve if self.ceiling is None else self.ceiling)
        self.engine.scheduler.set_quota(VICTIM, self.quota)
        for tenant, quota in zip(OTHERS, others, strict=True):
            self.set_quota(tenant, quota)
        self.recording = record(self.engine.pool, VICTIM)

    @rule(tenant=st.sampled_from(OTHERS), quota=quotas)
    def set_quota(self, tenant: UUID, quota: Quota) -> None:
        super().set_quota(tenant, quota)

    @rule(tenant=st.sampled_from(OTHERS))
    def purge(self, tenant: UUID) -> None:
        super().purge(tenant)

    @rule(mine=st.lists(requests, min_size=1, max_size=4), steps=st.integers(0, 24))
    def submit_mine(self, mine: list[Any], steps: int) -> None:
        """The victim's requests; those that can never fit are refused."""
        self.submit([(VICTIM, *what) for _, *what in mine], steps)

    def teardown(self) -> None:
        """Carries the victim's operations out alone, and compares."""
        if not hasattr(self, "recording"):
            return
        there = self.recording
        alone = replay(there, new_pool(self.engine.ledger.total), self.quota)
        assert alone.lookups == there.lookups, "hits differ"
        assert alone.evicted == there.evicted, "evictions differ"
        self.seen["hits"] += sum(there.lookups)
        self.seen["evictions"] += len(there.evicted)
        self.seen["suffered by others"] += sum(
            self.engine.account(other).evictions_suffered for other in OTHERS
        )


class ElasticAmid(Amid):
    """The same of a tenant that may borrow."""

    ceiling = UNLIMITED


@ASYNC
@pytest.mark.parametrize("number", seeds(2, 40))
def test_a_strict_tenants_operations_do_the_same_alone(
    make_config: Callable[..., Any], asynchronous: bool, number: int
) -> None:
    """With any concurrency, its recorded operations hit and lose the same hashes on its own."""
    machine: Any = Amid
    machine.make_config = staticmethod(cache(make_config))
    machine.asynchronous = asynchronous
    machine.seen, machine.longest_wait = Counter(), []
    run_machine(machine, number, effort(20, 200), 30)
    assert min(machine.seen[what] for what in ("hits", "evictions", "suffered by others")) > 0


def test_an_elastic_tenants_operations_do_not(make_config: Callable[..., Any]) -> None:
    """The comparison finds what others did to a tenant that borrows."""
    machine: Any = ElasticAmid
    machine.make_config = staticmethod(cache(make_config))
    machine.asynchronous = False
    machine.seen, machine.longest_wait = Counter(), []
    with pytest.raises(AssertionError, match=r"(hits|evictions) differ"):
        run_machine(machine, 0, effort(100, 100), 30)


mine = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 6 * BLOCK), st.integers(1, 2 * BLOCK)),
    min_size=2,
    max_size=12,
)
acts = st.one_of(
    st.tuples(st.just("submit"), requests),
    st.tuples(st.just("submit"), requests),
    st.tuples(st.just("abort"), st.integers(0, 40)),
    st.tuples(st.just("quota"), quotas),
    st.tuples(st.just("pause"), st.none()),
    st.tuples(st.just("pause"), st.none()),
)


class OneAtATime:
    """The victim sends its next request when the last one has ended."""

    def __init__(self, config: Any, window: int | None, quota: Quota) -> None:
        self.engine = FakeEngine(config, TENANTS, window)
        self.engine.scheduler.set_quota(VICTIM, quota)
        self.recording: Recording = record(self.engine.pool, VICTIM)
        self.fared: list[Any] = []
        """For each request: cached tokens, tokens received, how it ended."""

    def act(self, kind: str, what: Any) -> None:
        """Another tenant's or the operator's act."""
        engine = self.engine
        names = [n for n, r in engine.live.items() if r.saltwall_holder.owner.tenant != VICTIM]
        if kind == "submit":
            tenant, family, prompt, output, copies, _ = what
            tenant = OTHERS[TENANTS.index(tenant) % len(OTHERS)]
            for _ in range(copies):
                engine.submit(tenant, [family] * prompt, output)
        elif kind == "abort" and names:
            engine.abort([names[what % len(names)]])
        elif kind == "quota":
            tenant = OTHERS[what.reserve % len(OTHERS)]
            with suppress(QuotaError):
                engine.scheduler.set_quota(tenant, what)

    def run(self, mine: list[Any], others: list[Any]) -> None:
        """Serves the victim's requests; before each step come some of the others' acts."""
        engine, left = self.engine, iter(others)
        for family, prompt, output in mine:
            name = engine.submit(VICTIM, [family] * prompt, output)
            if name is None:
                self.fared.append(None)
                continue
            for _ in range(3000):
                for kind, what in left:
                    if kind == "pause":
                        break
                    self.act(kind, what)
                engine.step()
                if name in engine.finished:
                    break
            self.fared.append((engine.cached[name], engine.tokens[name], engine.finished[name]))


def check_one_at_a_time(
    make_config: Callable[..., Any], asynchronous: bool, number: int, ceiling: int | None
) -> Counter[str]:
    """Compares the victim's lot among others with its lot alone.

    Raises:
        AssertionError: they differ.
    """
    seen: Counter[str] = Counter()
    configs = cache(make_config)

    @seed(number)
    @effort(60, 600)
    @given(
        mine,
        st.lists(acts, min_size=20, max_size=120),
        st.sampled_from([13, 21, 33]),
        st.sampled_from([64, 512]),
        st.sampled_from([None, None, 40]),
        st.integers(2, 8),
    )
    def check(
        mine: list[Any], others: list[Any], blocks: int, step_tokens: int, window: Any, reserve: int
    ) -> None:
        config = configs(
            asynchronous=asynchronous, blocks=blocks, running=6, step_tokens=step_tokens
        )
        quota = Quota(reserve, reserve if ceiling is None else ceiling)
        alone, amid = (OneAtATime(config, window, quota) for _ in range(2))
        alone.run(mine, [])
        amid.run(mine, others)
        assert alone.fared == amid.fared, "hits differ"
        assert alone.recording.evicted == amid.recording.evicted, "evictions differ"
        seen["hits"] += sum(bool(fared and fared[0]) for fared in amid.fared)
        seen["evictions"] += len(amid.recording.evicted)
        seen["suffered by others"] += sum(
            amid.engine.account(other).evictions_suffered for other in OTHERS
        )

    check()
    return seen


@ASYNC
@pytest.mark.parametrize("number", seeds(1, 20))
def test_a_strict_tenant_with_one_request_in_flight_fares_as_if_alone(
    make_config: Callable[..., Any], asynchronous: bool, number: int
) -> None:
    """End to end: its cached tokens, answers and evicted hashes are the same, come what may."""
    seen = check_one_at_a_time(make_config, asynchronous, number, None)
    assert min(seen[what] for what in ("hits", "evictions", "suffered by others")) > 0


def test_an_elastic_tenant_with_one_request_in_flight_does_not(
    make_config: Callable[..., Any],
) -> None:
    """A tenant that borrows sees by its cached tokens what others do."""
    with pytest.raises(AssertionError, match=r"(hits|evictions) differ"):
        check_one_at_a_time(make_config, False, 0, UNLIMITED)
