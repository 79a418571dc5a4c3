"""Saltwall's block hash, implemented anew from its description, and the published vectors.

    h[i] = SHA-256(CBOR([h[i-1] or NONE_HASH, [token ids of block i], extra[i]]))

`extra[i]` begins with ["cache_salt", <32 bytes>] on every block, and has vLLM's own keys after it.
Neither vLLM nor a CBOR library is used.
"""

import json
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, NamedTuple

from saltwall_security.collision.cbor import Value, encode

NONE_HASH = sha256(encode("vllm-none-hash")).digest()
"""vLLM's parent of first blocks (v1/core/kv_cache_utils.py), for hashes of CBOR and no seed."""


def preimage(parent: bytes, tokens: Sequence[int], extra: Sequence[Value]) -> bytes:
    """What a block's hash is the SHA-256 of.

    Args:
        parent: the hash of the block before, or `NONE_HASH`.
        tokens: the block's token ids.
        extra: its keys: tagged arrays, the salt's first.
    """
    return encode([parent, list(tokens), list(extra)])


def block_hashes(
    tokens: Sequence[int],
    block_size: int,
    salt: bytes,
    extra: Sequence[Sequence[Value]] = (),
    *,
    first_only: bool = False,
) -> list[bytes]:
    """The hashes of a prompt's full blocks.

    Args:
        tokens: the prompt's token ids.
        block_size: tokens in a block.
        salt: the tenant's, 32 bytes.
        extra: each block's keys besides the salt; none for blocks beyond its end.
        first_only: the salt in the first block only, as stock vLLM has it.
    """
    parent, hashes = NONE_HASH, []
    for i in range(len(tokens) // block_size):
        salted: list[Value] = [] if first_only and i else [["cache_salt", salt]]
        keys = [*salted, *(extra[i] if i < len(extra) else ())]
        block = tokens[i * block_size : (i + 1) * block_size]
        parent = sha256(preimage(parent, block, keys)).digest()
        hashes.append(parent)
    return hashes


class Vector(NamedTuple):
    """A published test vector, what is made of it here, and so with the salt in one block only."""

    published: list[bytes]
    computed: list[bytes]
    first_only: list[bytes]


@cache
def vectors() -> tuple[Vector, ...]:
    """The published vectors."""
    document = json.loads(files(__package__).joinpath("vectors.json").read_text())
    return tuple(_vector(entry) for entry in document["vectors"])


def _vector(entry: Any) -> Vector:
    tokens, size, extra = entry["token_ids"], entry["block_size"], entry["extra"]
    salt = bytes.fromhex(entry["salt"])
    return Vector(
        [bytes.fromhex(text) for text in entry["block_hashes"]],
        block_hashes(tokens, size, salt, extra),
        block_hashes(tokens, size, salt, extra, first_only=True),
    )


def vector_digest(*, first_only: bool = False) -> str:
    """What a right engine attests: SHA-256 over all vectors' block hashes in order, in hex.

    Args:
        first_only: what one attests that salts the first block only.
    """
    found = (vector.first_only if first_only else vector.computed for vector in vectors())
    return sha256(b"".join(h for hashes in found for h in hashes)).hexdigest()
