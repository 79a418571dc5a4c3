"""The block hash: with the salt in every block, against stock's `sha256_cbor` without any."""

import hashlib
from collections.abc import Iterator
from typing import Any

import cbor2
from paired import Outcome, Side, Stopwatch, measure
from vllm.utils.hashing import sha256_cbor
from vllm.v1.core import kv_cache_utils
from world import STOCK_HASHER, prompt, request, tenant

from saltwall_engine.block_hash import get_request_block_hasher

GOALS = {16: 0.9, 32: 0.9, 128: None}
"""By tokens in a block."""

PROMPT, REQUESTS, ROUNDS = 256, 256, 60  # blocks; requests of one block; pairs


def chain(tokens: list[int], size: int, salt: bytes) -> list[bytes]:
    """The salted hashes, each from a CBOR library's encoding of the whole block."""
    parent, hashes = kv_cache_utils.NONE_HASH, []
    for start in range(0, len(tokens), size):
        block = [parent, tokens[start : start + size], [["cache_salt", salt]]]
        parent = hashlib.sha256(cbor2.dumps(block, canonical=True)).digest()
        hashes.append(parent)
    return hashes


def _hashing(hasher: Any, requests: list[Any], blocks: int) -> Side:
    """Hashes requests of so many blocks each; they do not keep their hashes."""

    def side() -> dict[str, float]:
        watch = Stopwatch()
        with watch:
            for each in requests:
                hasher(each)
        return {"hash": watch.seconds / len(requests) / blocks * 1e6}

    return side


def outcomes(quick: bool) -> Iterator[Outcome]:
    """For each block size: a long prompt, and blocks one at a time, as decodes fill them.

    Raises:
        AssertionError: a hash is not byte for byte what DESIGN 3.1 says.
    """
    kv_cache_utils.init_none_hash(sha256_cbor)
    whose = tenant(0)
    for size, goal in GOALS.items():
        stock, ours = STOCK_HASHER(size, sha256_cbor), get_request_block_hasher(size, sha256_cbor)
        for requests, blocks in ((1, PROMPT), (REQUESTS, 1)):
            prompts = [prompt(size * blocks) for _ in range(requests)]
            salted = [request(tokens, whose) for tokens in prompts]
            for each, tokens in zip(salted, prompts, strict=True):
                if ours(each) != chain(tokens, size, whose.salt):
                    raise AssertionError(f"blocks of {size} tokens hash to something else")
            plain = _hashing(stock, [request(tokens) for tokens in prompts], blocks)
            rounds = 6 if quick else ROUNDS
            series = measure(plain, _hashing(ours, salted, blocks), plain, rounds)
            yield Outcome.of(
                "hash",
                f"{size} tokens, {'a prompt' if blocks > 1 else 'one by one'}",
                "µs/block",
                series["hash"],
                goal=goal if blocks > 1 else None,
            )
