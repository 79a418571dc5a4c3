"""A strict tenant's hits and evictions depend on its own pool operations alone."""

from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from pool_recording import record, replay
from pool_twin import TENANTS, Twin, new_pool, quota
from properties import effort, run_machine, seeds
from quota_model import NO_CEILING, Terms

VICTIM, OTHERS = TENANTS[0], TENANTS[1:4]
WITNESSED = ("hits", "evictions", "suffered by others")
numbers = st.integers(0, 40)
others = st.sampled_from(OTHERS)
some_terms = st.tuples(st.integers(0, 6), st.integers(0, 10) | st.none()).map(
    lambda t: Terms(t[0], NO_CEILING if t[1] is None else t[0] + t[1])
)


class Interference(RuleBasedStateMachine):
    """One tenant at work among others that flood, abort, share, and are given other quotas."""

    strict = True
    seen: ClassVar[Counter[str]] = Counter()

    @initialize(total=st.integers(6, 16), reserve=st.integers(1, 5))
    def start(self, total: int, reserve: int) -> None:
        self.twin = Twin(total, TENANTS[:4])
        self.terms = Terms(reserve, reserve if self.strict else NO_CEILING)
        self.twin.set_terms(VICTIM, self.terms)
        self.recording = record(self.twin.pool, VICTIM)
        self.contents: list[int] = []

    @rule(contents=st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True))
    def request(self, contents: list[int]) -> None:
        """Its request takes the blocks of its prefix that are cached, and new ones for the rest."""
        twin, model = self.twin, self.twin.model
        found: list[int] = []
        for content in contents:
            block = twin.found(VICTIM, content)
            if block is None:
                break
            found.append(next(n for n, i in twin.ids.items() if i == block.block_id))
        idle = sum(not model.refs[name] for name in found)
        rest = contents[len(found) :]
        if model.room(VICTIM, idle) < idle + len(rest):
            return
        for name in found:
            twin.hit(name)
        if rest:
            names = range(model.named + 1, model.named + len(rest) + 1)
            assert twin.allocate(VICTIM, len(rest))
            for name, content in zip(names, rest, strict=True):
                twin.cache(name, content)

    @rule(picks=st.lists(numbers, min_size=1, max_size=6, unique=True))
    def end(self, picks: list[int]) -> None:
        if pinned := self.twin.model.pinned(VICTIM):
            self.twin.release(list(dict.fromkeys(pinned[pick % len(pinned)] for pick in picks)))

    @rule(tenant=others, blocks=st.integers(1, 12), keep=st.booleans())
    def flood(self, tenant: str, blocks: int, keep: bool) -> None:
        """Another tenant takes what it can get, and keeps it or leaves it cached."""
        blocks = min(blocks, self.twin.model.room(tenant))
        if blocks:
            (self.twin.allocate if keep else self.twin.serve)(tenant, blocks)

    @rule(tenant=others)
    def abort(self, tenant: str) -> None:
        if pinned := self.twin.model.pinned(tenant):
            self.twin.release(pinned[::-1])

    @rule(tenant=others, pick=numbers)
    def share(self, tenant: str, pick: int) -> None:
        if idle := self.twin.model.idle_of(tenant):
            self.twin.hit(idle[pick % len(idle)])

    @rule(tenant=others)
    def purge(self, tenant: str) -> None:
        self.twin.purge(tenant)

    @rule(tenant=others, terms=some_terms)
    def set_terms(self, tenant: str, terms: Terms) -> None:
        self.twin.set_terms(tenant, terms)
        self.twin.trim(tenant)

    def teardown(self) -> None:
        """What became of its operations is what becomes of them with nobody else there."""
        if not hasattr(self, "recording"):
            return
        there = self.recording
        alone = replay(there, new_pool(self.twin.model.total), quota(self.terms))
        assert alone.lookups == there.lookups, "hits differ"
        assert alone.evicted == there.evicted, "evictions differ"
        self.seen["hits"] += sum(there.lookups)
        self.seen["evictions"] += len(there.evicted)
        self.seen["suffered by others"] += sum(
            self.twin.holders[other].account.evictions_suffered for other in OTHERS
        )


class ElasticInterference(Interference):
    """The same life of a tenant that may borrow."""

    strict = False


@pytest.mark.parametrize("number", seeds(3, 60))
def test_a_strict_tenant_fares_as_if_alone(number: int) -> None:
    """Its hits and evicted hashes, element by element, are those of the same operations alone."""
    machine: Any = Interference
    machine.seen.clear()
    run_machine(machine, number, effort(80, 600))
    assert min(machine.seen[what] for what in WITNESSED) > 0, machine.seen


def test_an_elastic_tenant_does_not() -> None:
    """The same comparison finds others' traces in the hits and evictions of a borrower."""
    machine: Any = ElasticInterference
    with pytest.raises(AssertionError, match=r"(hits|evictions) differ"):
        run_machine(machine, 0, effort(200, 200))
