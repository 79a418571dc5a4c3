"""Sizes that fit the pool at hand."""

import pytest

from saltwall_security.suites.eviction.pool import Pool
from saltwall_security.suites.eviction.scale import IN_FLIGHT, Scale


@pytest.mark.parametrize(("blocks", "block_tokens"), [(320, 32), (640, 16), (4_000, 16), (60, 128)])
def test_attackers_pin_more_than_the_pool(blocks: int, block_tokens: int) -> None:
    """With all their requests in flight; short of a pool that would take too many."""
    scale = Scale(Pool(blocks, block_tokens), 3.0, 32)
    assert scale.in_flight * scale.prompt > scale.pool.tokens


def test_what_is_reserved_leaves_most_of_the_pool() -> None:
    """There is room for the flood, and for tenants who have reserves already."""
    scale = Scale(Pool(320, 32), 3.0, 32)
    assert scale.reserve + scale.strict < 0.4 * scale.pool.tokens


def test_the_victims_prompt_is_as_long_as_the_attackers() -> None:
    """Where steps are long, those under way would else be many times a short one."""
    scale = Scale(Pool(100_000, 16), 3.0, 32)
    assert scale.reserve >= scale.prefix + scale.prompt


def test_a_large_pool_is_no_reason_for_endless_requests() -> None:
    """The number in flight has a bound, and so has a prompt's length."""
    scale = Scale(Pool(1_000_000, 16), 3.0, 32, longest=2_000)
    assert scale.in_flight == IN_FLIGHT[1]
    assert scale.prompt == 2_000
