"""The search finds two blocks with one encoding where there are some, and only there."""

import random
from collections.abc import Callable

import pytest

from saltwall_security.collision.cbor import encode
from saltwall_security.collision.injectivity import (
    KINDS,
    Block,
    Encoder,
    framed,
    search,
    unframed,
    unreadable,
)


def always() -> bool:
    return True


def untagged(block: Block) -> bytes:
    return encode([block.parent, list(block.tokens), [list(key[1:]) for key in block.extra]])


def flat_keys(block: Block) -> bytes:
    return encode([block.parent, list(block.tokens), [part for key in block.extra for part in key]])


def text_keys(block: Block) -> bytes:
    return encode([block.parent, list(block.tokens), [[str(p) for p in k] for k in block.extra]])


def joined_fields(block: Block) -> bytes:
    keys = ["/".join(map(str, key)) for key in block.extra]
    return encode([block.parent, list(block.tokens), keys])


def narrow_tokens(block: Block) -> bytes:
    return encode([block.parent, [token % 2**32 for token in block.tokens], list(block.extra)])


def sorted_keys(block: Block) -> bytes:
    return encode([block.parent, list(block.tokens), *sorted(map(encode, block.extra))])


@pytest.mark.parametrize(
    "encoder",
    [unframed, untagged, flat_keys, text_keys, joined_fields, narrow_tokens, sorted_keys],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_careless_encoding_is_found_out(encoder: Encoder, seed: int) -> None:
    """In a run at the default budget, whatever is careless about it."""
    found = search(encoder, random.Random(seed), 20_000, always).found
    assert found is not None
    one, other = found
    assert one != other
    assert encoder(one) == encoder(other)


def test_the_described_encoding_is_not() -> None:
    """Over every kind of key."""
    result = search(framed, random.Random(0), 5_000, always)
    assert result.found is None
    assert result.kinds == set(KINDS)
    assert result.tried >= 5_000


def test_every_encoding_is_read_back() -> None:
    """And damaged ones are read as themselves or not at all."""
    assert unreadable(random.Random(0), 2_000, always) is None


def test_a_search_ends_in_time() -> None:
    """When there is none left."""
    assert search(framed, random.Random(0), 10**9, _times(3)).tried <= 3 * 8


def _times(most: int) -> Callable[[], bool]:
    left = iter(range(most))
    return lambda: next(left, None) is not None
