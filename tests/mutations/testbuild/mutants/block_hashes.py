"""Defects of the block hash."""

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

from mutants.mutant import Mutant, Where

NO_KEYS = b"\xf6"
"""CBOR's null: what stock vLLM encodes where a block has no extra keys."""
COMPLETIONS = "cmpl-"
"""How vLLM's ids of requests on /v1/completions begin."""

FIRST_BLOCK_ONLY = Mutant(
    "salt-in-first-block-only",
    "Only a prompt's first block has the salt in its hash, as in stock vLLM.",
    Where.SCHEDULER,
    "collision",
    "G8",
)
DROPPED_ON_ROUTE = Mutant(
    "salt-dropped-on-a-route",
    "Only the first block is salted, and on /v1/completions not even that.",
    Where.CORE,
    "isolation",
    "G1",
    taints=True,
)


@FIRST_BLOCK_ONLY.replaces("saltwall_engine.block_hash:_encoded_extra_keys")
def _(original: Any, request: Any, start: int, size: int) -> Iterator[bytes]:
    salted = [next(original(request, start, size))] if start == 0 else []
    return chain(salted, repeat(NO_KEYS))


@DROPPED_ON_ROUTE.replaces("saltwall_engine.block_hash:_encoded_extra_keys")
def _(original: Any, request: Any, start: int, size: int) -> Iterator[bytes]:
    salted = start == 0 and not request.request_id.startswith(COMPLETIONS)
    return chain([next(original(request, start, size))] if salted else [], repeat(NO_KEYS))


UNTAGGED = Mutant(
    "untagged-keys",
    "Extra keys are hashed without their tags: a LoRA's name counts as much as a salt.",
    Where.SCHEDULER,
    "collision",
    "G8",
)


@UNTAGGED.replaces("saltwall_engine.block_hash:salted_extra_keys")
def _(original: Any, *args: Any) -> Any:
    keys, next_mm_idx = original(*args)
    return tuple(key[1:] for key in keys), next_mm_idx


TRUNCATED = Mutant(
    "digest-truncated",
    "Of each block's digest 16 bits count.",
    Where.SCHEDULER,
    "collision",
    "G8",
)


@TRUNCATED.replaces("saltwall_engine.block_hash:get_request_block_hasher")
def _(original: Any, *args: Any, **kwargs: Any) -> Any:
    hasher = original(*args, **kwargs)
    return lambda request: [digest[:2] + bytes(30) for digest in hasher(request)]
