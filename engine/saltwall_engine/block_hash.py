"""The tenant's salt in every block hash.

    h[i] = SHA-256(CBOR([h[i-1] or NONE_HASH, [token ids of block i], extra[i]]))

This is vLLM's `sha256_cbor` (v1/core/kv_cache_utils.py), which salts the first block only; here
`["cache_salt", <32 bytes>]` comes first in `extra[i]` of every block. The hasher that vLLM would
make is replaced by one that encodes once what a request's blocks have in common, and so costs less
than vLLM's does without salt. The whole is checked against published test vectors.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from importlib.resources import files
from itertools import repeat
from typing import Any
from uuid import UUID

import cbor2
from vllm.utils.hashing import sha256_cbor
from vllm.v1.core import kv_cache_utils
from vllm.v1.engine import core

from saltwall_engine.errors import BootRefused, UnsaltedRequest
from saltwall_engine.salt_label import Grant, Owner, SaltLabel, grant_of

SALT_TAG = "cache_salt"
SALT_BYTES = 32

HASHER_NAMES = (kv_cache_utils, core)
"""Where vLLM looks up `get_request_block_hasher`; EngineCore has a name of its own for it."""

_HEAD = bytes([0x83, 0x58, hashlib.sha256().digest_size])  # an array of 3; a byte string of 32, ...
_SALT_ALONE = cbor2.dumps([[SALT_TAG, bytes(SALT_BYTES)]])[:-SALT_BYTES]

# Never replaced: KV events publish what it returns, which is the label and never the salt.
_stock_extra_keys = kv_cache_utils.generate_block_hash_extra_keys


def _salt_of(request: Any) -> bytes:
    grant = grant_of(request.cache_salt)
    if grant is None or len(grant.salt) != SALT_BYTES:
        raise UnsaltedRequest("a request without a verified ticket has no block hashes")
    return grant.salt


def salted_extra_keys(
    request: Any, start_token_idx: int, end_token_idx: int, start_mm_idx: int
) -> tuple[tuple[tuple[Any, ...], ...], int]:
    """The extra keys of one block: the tenant's salt, then vLLM's own, each tagged.

    Raises:
        UnsaltedRequest: the request carries no grant.
    """
    salt = _salt_of(request)
    stock, next_mm_idx = _stock_extra_keys(request, start_token_idx, end_token_idx, start_mm_idx)
    own = (key for key in stock or () if key[0] != SALT_TAG)
    return ((SALT_TAG, salt), *own), next_mm_idx


def _encoded_extra_keys(request: Any, start: int, size: int) -> Iterator[bytes]:
    """CBOR of `extra[i]` for each block from token `start` on, without end."""
    if request.mm_features or request.prompt_embeds is not None:
        return _encoded_block_by_block(request, start, size)
    if request.lora_request:
        keys, _ = salted_extra_keys(request, start, start + size, 0)
        return repeat(cbor2.dumps(keys, canonical=True))
    return repeat(_SALT_ALONE + _salt_of(request))


def _encoded_block_by_block(request: Any, start: int, size: int) -> Iterator[bytes]:
    mm_idx = 0
    while True:
        keys, mm_idx = salted_extra_keys(request, start, start + size, mm_idx)
        yield cbor2.dumps(keys, canonical=True)
        start += size


def get_request_block_hasher(
    hash_block_size: int, caching_hash_fn: Any, num_hash_lookahead_tokens: int = 0
) -> Callable[[Any], list[bytes]]:
    """As vLLM's: a function that hashes the blocks which a request has filled since the last call.

    Args:
        hash_block_size: tokens in a block.
        caching_hash_fn: vLLM's `sha256_cbor`.
        num_hash_lookahead_tokens: 0; vLLM 0.33 hashes a block with the tokens after it otherwise.

    Raises:
        BootRefused: it would be another block hash.
    """
    if caching_hash_fn is not sha256_cbor or num_hash_lookahead_tokens:
        raise BootRefused(["the block hash is not sha256_cbor of each block alone"])

    def request_block_hasher(request: Any) -> list[bytes]:
        """Raises:
        UnsaltedRequest: the request carries no grant.
        """
        start = len(request.block_hashes) * hash_block_size
        end = request.num_tokens
        if start + hash_block_size > end:
            return []
        tokens = request.all_token_ids[start:end]
        parent = request.block_hashes[-1] if start else kv_cache_utils.NONE_HASH
        full_blocks = range(hash_block_size, len(tokens) + 1, hash_block_size)
        extra_keys = _encoded_extra_keys(request, start, hash_block_size)
        new: list[bytes] = []
        for stop, extra in zip(full_blocks, extra_keys, strict=False):
            block = cbor2.dumps(tokens[stop - hash_block_size : stop])
            parent = hashlib.sha256(_HEAD + parent + block + extra).digest()
            new.append(parent)
        return new

    return request_block_hasher


def install() -> None:
    """Makes EngineCore use the salted block hasher."""
    for module in HASHER_NAMES:
        module.get_request_block_hasher = get_request_block_hasher


def problems() -> list[str]:
    """Why the hook is not live; empty when it is."""
    if all(module.get_request_block_hasher is get_request_block_hasher for module in HASHER_NAMES):
        return []
    return ["the salted block hash is not live: start with `saltwall engine`"]


def vector_digest() -> str:
    """SHA-256 over the hashes that EngineCore's hasher makes of the published vectors, in order.

    Sets vLLM's NONE_HASH for `sha256_cbor`, as EngineCore does.
    """
    kv_cache_utils.init_none_hash(sha256_cbor)
    vectors = json.loads(files(__package__).joinpath("vectors.json").read_text())["vectors"]
    digest = hashlib.sha256()
    for vector in vectors:
        hasher = core.get_request_block_hasher(vector["block_size"], sha256_cbor)
        for block_hash in vector_request(vector, hasher).block_hashes:
            digest.update(block_hash)
    return digest.hexdigest()


def vector_request(vector: dict[str, Any], hasher: Any) -> Any:
    """A real vLLM Request whose blocks have the salt, tokens and extra keys of a test vector."""
    from vllm.lora.request import LoRARequest
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    lora = None
    images: dict[str, int] = {}
    for index, keys in enumerate(vector["extra"]):
        for tag, name, value in keys:
            if tag == "lora":
                lora = LoRARequest(name, 1, value)
            elif tag == "mm":
                images.setdefault(name, index * vector["block_size"] + value)
    owner = Owner(UUID(int=0), 1)
    return Request(
        request_id="test-vector",
        prompt_token_ids=vector["token_ids"],
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        lora_request=lora,
        mm_features=[
            MultiModalFeatureSpec(None, "image", name, PlaceholderRange(offset=at, length=1))
            for name, at in images.items()
        ],
        cache_salt=SaltLabel(Grant(owner, bytes.fromhex(vector["salt"]))),
        block_hasher=hasher,
    )
