"""Long random lives of a pool with several tenants, held against the model of the contract.

Deeper than `test_pool_exhaustive`, and with what it leaves out: several blocks of one hash, blocks
shared by many requests, requests admitted under an older ceiling, blocks that are read after their
last reference, resets, purges.
"""

import itertools
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from pool_twin import TENANTS, Twin
from properties import effort, run_machine, seeds
from quota_model import NO_CEILING, Terms

tenants = st.sampled_from(TENANTS[:4])
numbers = st.integers(0, 40)
some_terms = st.tuples(st.integers(0, 8), st.integers(0, 10) | st.none()).map(
    lambda t: Terms(t[0], NO_CEILING if t[1] is None else t[0] + t[1])
)


class PoolLife(RuleBasedStateMachine):
    """Whatever requests of four tenants can do to a pool."""

    @initialize(total=st.integers(4, 24), terms=st.lists(some_terms, min_size=4, max_size=4))
    def start(self, total: int, terms: list[Terms]) -> None:
        self.twin = Twin(total, TENANTS[:4])
        for tenant, given in zip(TENANTS, terms, strict=False):
            self.twin.set_terms(tenant, given)

    def chosen(self, names: list[int], picks: list[int]) -> list[int]:
        """Some of the names, each once."""
        return list(dict.fromkeys(names[pick % len(names)] for pick in picks)) if names else []

    @rule(tenant=tenants, blocks=st.integers(1, 12))
    def allocate(self, tenant: str, blocks: int) -> None:
        self.twin.allocate(tenant, blocks)

    @rule(tenant=tenants, blocks=st.integers(1, 8))
    def serve(self, tenant: str, blocks: int) -> None:
        self.twin.serve(tenant, blocks)

    @rule(tenant=tenants, picks=st.lists(numbers, min_size=1, max_size=6))
    def cache(self, tenant: str, picks: list[int]) -> None:
        twin = self.twin
        full = [name for name in twin.model.pinned(tenant) if name not in twin.model.cached]
        for name in self.chosen(full, picks):
            twin.cache(name)

    @rule(tenant=tenants, pick=numbers, other=numbers)
    def cache_again(self, tenant: str, pick: int, other: int) -> None:
        """A second block under the hash of one that is cached."""
        twin = self.twin
        full = [name for name in twin.model.pinned(tenant) if name not in twin.model.cached]
        cached = [name for name in twin.model.held(tenant) if name in twin.model.cached]
        if full and cached:
            like = cached[other % len(cached)]
            twin.cache(full[pick % len(full)], twin.content[like])

    @rule(tenant=tenants, picks=st.lists(numbers, min_size=1, max_size=6))
    def hit(self, tenant: str, picks: list[int]) -> None:
        """Cached blocks are referenced once more, as far as the tenant may pin them."""
        twin, model = self.twin, self.twin.model
        for name in self.chosen([n for n in model.held(tenant) if n in model.cached], picks):
            if model.refs[name] or len(model.pinned(tenant)) < model.terms[tenant].ceiling:
                twin.hit(name)

    @rule(tenant=tenants, picks=st.lists(numbers, min_size=1, max_size=8))
    def release(self, tenant: str, picks: list[int]) -> None:
        self.twin.release(self.chosen(self.twin.model.pinned(tenant), picks))

    @rule(picks=st.lists(numbers, min_size=1, max_size=12))
    def release_of_several_tenants(self, picks: list[int]) -> None:
        model = self.twin.model
        self.twin.release(self.chosen([n for n, refs in model.refs.items() if refs], picks))

    @rule(tenant=tenants, pick=numbers)
    def uncache(self, tenant: str, pick: int) -> None:
        twin = self.twin
        for name in self.chosen(
            [n for n in twin.model.held(tenant) if n in twin.model.cached], [pick]
        ):
            twin.uncache(name)

    @rule(tenant=tenants)
    def purge(self, tenant: str) -> None:
        """Everything cached for a tenant is unhashed, used or not."""
        self.twin.purge(tenant)

    @rule()
    def reset(self) -> None:
        self.twin.reset()

    @rule(tenant=tenants, terms=some_terms)
    def set_terms(self, tenant: str, terms: Terms) -> None:
        self.twin.set_terms(tenant, terms)

    @rule(tenant=tenants)
    def trim(self, tenant: str) -> None:
        self.twin.trim(tenant)

    @rule(tenant=tenants, blocks=st.integers(1, 6), more=st.integers(1, 6))
    def allocate_under_an_older_ceiling(self, tenant: str, blocks: int, more: int) -> None:
        ceiling = self.twin.model.terms[tenant].ceiling
        if ceiling < NO_CEILING:
            self.twin.allocate(tenant, blocks, ceiling + more)

    @rule(tenant=tenants, hits=st.integers(0, 8), more=st.integers(0, 6))
    def promise(self, tenant: str, hits: int, more: int) -> None:
        ceiling = self.twin.model.terms[tenant].ceiling + more
        self.twin.check_room(tenant, min(hits, len(self.twin.model.idle_of(tenant))))
        self.twin.check_room(tenant, 0, ceiling)

    @invariant()
    def agree(self) -> None:
        if hasattr(self, "twin"):
            self.twin.check()

    def teardown(self) -> None:
        """When every request has ended nothing is pinned, and a reset gives every block back."""
        if not hasattr(self, "twin"):
            return
        twin = self.twin
        while pinned := [name for name, refs in twin.model.refs.items() if refs]:
            twin.release(pinned)
        twin.check()
        assert twin.reset()
        twin.check()
        assert twin.pool.ledger.free == twin.model.total


@pytest.mark.parametrize("number", seeds(3, 60))
def test_the_pool_lives_by_the_contract(number: int) -> None:
    """Over a long life the pool gives, refuses and evicts exactly what the contract says."""
    machine: Any = PoolLife
    run_machine(machine, number, effort(60, 600))


def test_many_blocks_at_once_are_evicted_in_everybodys_order_of_use() -> None:
    """Whoever used the blocks in whatever order, a stranger's one allocation evicts the oldest."""
    for order in itertools.product(TENANTS[:3], repeat=6):
        twin = Twin(6, TENANTS[:4])
        for tenant in order:
            twin.serve(tenant, 1)
        assert twin.allocate(TENANTS[3], 5)


def test_a_release_of_several_tenants_evicts_nothing_that_may_stay() -> None:
    """One above a lowered ceiling is within it once all blocks of the call are released."""
    twin = Twin(8, TENANTS[:2])
    twin.allocate("a", 3)
    twin.allocate("b", 1)
    twin.set_terms("a", Terms(0, 2))
    twin.cache(1)
    twin.release([1, 4, 2])
    twin.check()
    assert twin.model.cached == {1}
