"""A search for two blocks with one encoding: whoever finds them needs no hash collision."""

import random
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from saltwall_security.collision.block_hash import preimage
from saltwall_security.collision.cbor import NotCanonical, Value, decode, encode

KINDS = ("cache_salt", "lora", "mm", "prompt_embeds")
"""Every kind of key that goes into a block hash."""

_EDGES = (0, 1, 23, 24, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**64 - 1)
"""Where an integer's encoding grows."""
_TEXTS = ("", "a", "b", "ab", "ba", "aba", "1", "lora", "mm", "cache_salt", "\x00", "é", "a" * 24)


class Block(NamedTuple):
    """What a block hash is taken of."""

    parent: bytes
    tokens: tuple[int, ...]
    extra: tuple[tuple[Value, ...], ...]


Encoder = Callable[[Block], bytes]


class Search(NamedTuple):
    """How a search ended.

    Args:
        tried: different blocks that were encoded.
        found: two blocks with one encoding; None if there were none.
        kinds: the kinds of key that occurred.
    """

    tried: int
    found: tuple[Block, Block] | None
    kinds: frozenset[str]


def framed(block: Block) -> bytes:
    """The encoding that Saltwall is described to use."""
    return preimage(*block)


def unframed(block: Block) -> bytes:
    """A deliberately weak encoding, everything in a row: what the search must find faults in."""
    parts = [block.parent, *(token.to_bytes(8, "big") for token in block.tokens)]
    for key in block.extra:
        parts += [_bare(item) for item in key]
    return b"".join(parts)


def _bare(item: Value) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode()


def search(encoder: Encoder, rng: random.Random, most: int, lasts: Callable[[], bool]) -> Search:
    """Looks for two different blocks with one encoding, among random ones and their neighbours.

    Args:
        encoder: the encoding in doubt.
        rng: the dice.
        most: the blocks to try.
        lasts: whether there is time left.
    """
    seen: dict[bytes, Block] = {}
    kinds: set[str] = set()
    while len(seen) < most and lasts():
        block = _random_block(rng)
        for _ in range(8):
            encoded = blake2b(encoder(block), digest_size=16).digest()
            if (other := seen.setdefault(encoded, block)) != block:
                return Search(len(seen), (other, block), frozenset(kinds))
            kinds.update(str(key[0]) for key in block.extra if key)
            block = rng.choice(_MUTATIONS)(block, rng)
    return Search(len(seen), None, frozenset(kinds & set(KINDS)))


def unreadable(rng: random.Random, most: int, lasts: Callable[[], bool]) -> Block | bytes | None:
    """Looks for a block that is not read back from its encoding, or bytes that none encodes to.

    A decoder that gives back every block is a proof that, of those, no two have one encoding.

    Args:
        rng: the dice.
        most: the blocks to try.
        lasts: whether there is time left.
    """
    for _ in range(most):
        if not lasts():
            break
        block = _random_block(rng)
        encoded = framed(block)
        if decode(encoded) != _lists(block):
            return block
        damaged = bytearray(encoded)
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            if encode(decode(bytes(damaged))) != damaged:
                return bytes(damaged)
        except NotCanonical:
            pass
    return None


def _lists(value: Value) -> Value:
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value


def _number(rng: random.Random) -> int:
    near = rng.choice(_EDGES) + rng.randint(-1, 1)
    return min(max(near, 0), 2**64 - 1)


def _bytes(rng: random.Random) -> bytes:
    return bytes(rng.choice((0, 1, 97, 255)) for _ in range(rng.choice((0, 1, 2, 32))))


def _random_block(rng: random.Random) -> Block:
    keys = tuple(_random_key(rng.choice(KINDS), rng) for _ in range(rng.randint(0, 3)))
    return Block(_bytes(rng), tuple(_number(rng) for _ in range(rng.randint(0, 4))), keys)


def _random_key(kind: str, rng: random.Random) -> tuple[Value, ...]:
    if kind == "lora":
        return (kind, rng.choice(_TEXTS), rng.choice(_TEXTS))
    if kind == "mm":
        return (kind, rng.choice(_TEXTS), rng.choice((-1, 1)) * rng.randint(0, 300))
    return (kind, _bytes(rng))


# Neighbours: blocks that a careless encoding does not tell from the one they are made of.


def _move_token_to_parent(block: Block, rng: random.Random) -> Block:
    if not block.tokens:
        return block
    first, *rest = block.tokens
    return block._replace(parent=block.parent + first.to_bytes(8, "big"), tokens=tuple(rest))


def _move_token_to_key(block: Block, rng: random.Random) -> Block:
    if not block.tokens:
        return block
    moved = block.tokens[-1].to_bytes(8, "big")
    return block._replace(tokens=block.tokens[:-1], extra=((moved,), *block.extra))


def _split_token(block: Block, rng: random.Random) -> Block:
    if not block.tokens:
        return block
    at = rng.randrange(len(block.tokens))
    high, low = divmod(block.tokens[at], rng.choice((10, 256, 65536)))
    return block._replace(tokens=(*block.tokens[:at], high, low, *block.tokens[at + 1 :]))


def _change_number(block: Block, rng: random.Random) -> Block:
    return block._replace(tokens=(*block.tokens[:-1], _number(rng)))


def _move_boundary(block: Block, rng: random.Random) -> Block:
    """One character of a key goes from one field to the next."""
    keys = [list(key) for key in block.extra]
    places = [
        (key, i)
        for key in keys
        for i in range(len(key) - 1)
        if isinstance(key[i], str) and isinstance(key[i + 1], str) and key[i]
    ]
    if places:
        key, i = rng.choice(places)
        key[i], key[i + 1] = key[i][:-1], key[i][-1] + key[i + 1]  # type: ignore[index,operator]
    return block._replace(extra=tuple(tuple(key) for key in keys))


def _merge_keys(block: Block, rng: random.Random) -> Block:
    if len(block.extra) < 2:
        return block
    first, second, *rest = block.extra
    return block._replace(extra=((*first, *second), *rest))


def _split_key(block: Block, rng: random.Random) -> Block:
    if not block.extra or not block.extra[-1]:
        return block
    *rest, last = block.extra
    at = rng.randrange(len(last))
    return block._replace(extra=(*rest, last[:at], last[at:]))


def _swap_keys(block: Block, rng: random.Random) -> Block:
    return block._replace(extra=block.extra[::-1])


def _change_kind(block: Block, rng: random.Random) -> Block:
    if not block.extra or not block.extra[0]:
        return block
    return block._replace(extra=((rng.choice(KINDS), *block.extra[0][1:]), *block.extra[1:]))


def _change_type(block: Block, rng: random.Random) -> Block:
    """The same characters as text, bytes or a number."""
    if not block.extra or not block.extra[-1]:
        return block
    *rest, last = block.extra
    return block._replace(extra=(*rest, (*last[:-1], _as_another_type(last[-1]))))


def _as_another_type(item: Value) -> Value:
    if isinstance(item, str):
        return int(item) if item.isascii() and item.isdigit() else item.encode()
    if isinstance(item, bytes):
        return item.decode("latin-1")
    return str(item)


def _empty_key(block: Block, rng: random.Random) -> Block:
    return block._replace(extra=(*block.extra, ()))


_MUTATIONS: Sequence[Callable[[Block, random.Random], Block]] = (
    _move_token_to_parent,
    _move_token_to_key,
    _split_token,
    _change_number,
    _move_boundary,
    _merge_keys,
    _split_key,
    _swap_keys,
    _change_kind,
    _change_type,
    _empty_key,
)
