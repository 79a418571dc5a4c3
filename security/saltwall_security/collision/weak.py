"""Collisions of token blocks under the weaker hashes that vLLM has used or offers."""

import random
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib import import_module
from typing import NamedTuple

import numpy as np

from saltwall_security.collision import tuple_hash, xxh3
from saltwall_security.collision.block_hash import preimage
from saltwall_security.collision.cbor import encode

PARENT = bytes(range(16))
"""Stands for the random parent of first blocks: the collisions do not depend on it."""
BUILTIN, XXHASH = "builtin", "xxhash_cbor"
_BUILTIN_TOKENS, _XXHASH_TOKENS = 16, 128
_VOCABULARY = 49_152


class Crafted(NamedTuple):
    """Two blocks of tokens with one hash.

    Args:
        algorithm: under which.
        how: how they were made.
        parents: under how many other parents they collide as well.
    """

    algorithm: str
    first: tuple[int, ...]
    second: tuple[int, ...]
    how: str
    parents: int

    @property
    def collides_here(self) -> bool:
        """Whether the hash that Saltwall is described to use is fooled by them too."""
        one, other = (
            sha256(preimage(PARENT, block, [["cache_salt", bytes(32)]])).digest()
            for block in (self.first, self.second)
        )
        return one == other


def offsets_collide() -> bool:
    """Whether an image that begins one token before a block is one that begins two before it.

    To Python's `hash` it is: -1 stands for an error there, so that the hash of -1 is that of -2.
    """
    return hash(("mm", "image", -1)) == hash(("mm", "image", -2))


def builtin(rng: random.Random, lasts: Callable[[], bool]) -> Crafted | None:
    """A second block for a given one under Python's `hash`; None where time is up first."""
    if not tuple_hash.applies():
        return None
    block = tuple(rng.randrange(tuple_hash.VOCABULARY) for _ in range(_BUILTIN_TOKENS))
    other = tuple_hash.second_block(block, np.random.default_rng(rng.getrandbits(64)), lasts)
    if other is None:
        return None
    parents = [rng.getrandbits(61) for _ in range(8)]
    same = sum(hash((parent, block, None)) == hash((parent, other, None)) for parent in parents)
    how = "a second block for a given one: its rounds can be undone, and halves meet in the middle"
    return Crafted(BUILTIN, block, other, how, same)


def xxhash(rng: random.Random) -> Crafted | None:
    """Two blocks under XXH3-128; None where the library to verify them with is missing."""
    try:
        digest: Callable[[bytes], bytes] = import_module("xxhash").xxh3_128_digest
    except ImportError:
        return None
    pair = xxh3.colliding_blocks(_as_vllm, _XXHASH_TOKENS, _VOCABULARY, rng)
    if pair is None or pair[0] == pair[1]:
        return None
    parents = [PARENT, *(rng.randbytes(16) for _ in range(8))]
    same = [digest(_as_vllm(pair[0], p)) == digest(_as_vllm(pair[1], p)) for p in parents]
    if not same[0]:
        return None
    how = "two blocks whose words add up alike in its lanes; no trial"
    return Crafted(XXHASH, tuple(pair[0]), tuple(pair[1]), how, sum(same[1:]))


def _as_vllm(tokens: Sequence[int], parent: bytes = PARENT) -> bytes:
    """What vLLM's `xxhash_cbor` hashes of a block without keys."""
    return b"\x83" + encode(parent) + encode(list(tokens)) + b"\xf6"
