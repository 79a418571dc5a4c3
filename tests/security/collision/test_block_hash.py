"""The independent block hash agrees with what is published, and tells one rule from another."""

import cbor2
from hypothesis import given
from hypothesis import strategies as st

from saltwall_security.collision.block_hash import NONE_HASH, preimage, vector_digest, vectors
from saltwall_tenants.wire.attestation import VECTOR_DIGEST

KEY = st.tuples(st.sampled_from(["lora", "mm"]), st.text(), st.integers(-(2**31), 2**31))


def test_the_published_vectors() -> None:
    """Each of them, block by block."""
    assert all(vector.published == vector.computed for vector in vectors())
    assert sum(len(vector.published) for vector in vectors()) > 20


def test_what_gateways_demand_is_what_is_computed() -> None:
    """The constant was not merely copied."""
    assert vector_digest() == VECTOR_DIGEST


def test_salting_the_first_block_only_shows_in_the_digest() -> None:
    """The attestation tells stock's rule from Saltwall's."""
    assert vector_digest(first_only=True) != vector_digest()


@given(st.lists(st.integers(0, 2**64 - 1)), st.lists(KEY))
def test_another_encoder_agrees(tokens: list[int], keys: list[tuple[str, str, int]]) -> None:
    """cbor2, in its canonical mode."""
    expected = cbor2.dumps([NONE_HASH, tokens, [list(key) for key in keys]], canonical=True)
    assert preimage(NONE_HASH, tokens, keys) == expected
