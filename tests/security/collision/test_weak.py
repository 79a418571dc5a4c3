"""Collisions are made of the weaker hashes' structure, and hold in the hashes themselves."""

import pickle
import random
from collections.abc import Sequence

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from saltwall_security.collision import tuple_hash, weak
from saltwall_security.collision.cbor import encode
from saltwall_security.collision.xxh3 import Encoder, colliding_blocks

TOKENS = st.lists(st.integers(0, 2**17 - 1), min_size=5, max_size=20)


def in_cbor(tokens: Sequence[int]) -> bytes:
    return encode([b"p" * 16, list(tokens), [["cache_salt", b"s" * 32]]])


def in_pickle(tokens: Sequence[int]) -> bytes:
    return pickle.dumps((b"p" * 16, tuple(tokens), None), protocol=5)


@pytest.mark.parametrize("encoder", [in_cbor, in_pickle])
@pytest.mark.parametrize("vocabulary", [32_000, 128_256])
def test_blocks_collide_under_xxh3(encoder: Encoder, vocabulary: int) -> None:
    """As pickles and as CBOR, with token ids that any model has, and under any parent."""
    pair = colliding_blocks(encoder, 128, vocabulary, random.Random(1))
    assert pair is not None
    one, other = map(encoder, pair)
    assert one != other
    assert max(*pair[0], *pair[1]) < vocabulary
    for parent in (b"p" * 16, b"another parent.."):
        ours, theirs = (data.replace(b"p" * 16, parent) for data in (one, other))
        assert xxhash.xxh3_128_digest(ours) == xxhash.xxh3_128_digest(theirs)
        assert xxhash.xxh3_64_digest(ours) == xxhash.xxh3_64_digest(theirs)


def test_short_blocks_are_left_alone() -> None:
    """XXH3 hashes 240 bytes and fewer another way."""
    assert colliding_blocks(in_cbor, 16, 32_000, random.Random(1)) is None


@given(TOKENS)
def test_the_tuple_hash_is_known(tokens: list[int]) -> None:
    """Forwards it is Python's own, and backwards it comes to where it began."""
    after = tuple_hash._after(tokens, tuple_hash._P5)
    assert tuple_hash._finish(after, len(tokens)) == hash(tuple(tokens)) % 2**64
    assert tuple_hash._before(tokens, after) == tuple_hash._P5


def test_a_second_block_is_made_for_a_given_one() -> None:
    """With the same hash under any parent, in seconds."""
    pair = weak.builtin(random.Random(2), lambda: True)
    assert pair is not None
    assert pair.first != pair.second
    assert hash(pair.first) == hash(pair.second)
    assert pair.parents == 8
    assert not pair.collides_here


def test_image_offsets_collide_under_the_builtin_hash() -> None:
    """Minus one and minus two, which vLLM's keys of images do hold."""
    assert weak.offsets_collide()
    assert encode(["mm", "image", -1]) != encode(["mm", "image", -2])


def test_no_time_no_collision() -> None:
    """A search that is cut off finds nothing, and says so."""
    assert weak.builtin(random.Random(2), lambda: False) is None
