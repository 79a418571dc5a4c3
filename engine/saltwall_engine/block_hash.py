"""The tenant's salt in every block hash.

    h[i] = SHA-256(CBOR([h[i-1] or NONE_HASH, [token ids of block i], extra[i]]))

vLLM computes it (v1/core/kv_cache_utils.py, `sha256_cbor`); this module puts
`["cache_salt", <32 bytes>]` first in `extra[i]` of every block, where vLLM itself salts the first
block only, and checks the whole against published test vectors.
"""

import hashlib
import json
from importlib.resources import files
from typing import Any
from uuid import UUID

from vllm.v1.core import block_pool, kv_cache_utils
from vllm.v1.simple_kv_offload import manager as kv_offload_manager

from saltwall_engine.errors import UnsaltedRequest
from saltwall_engine.salt_label import Grant, Owner, SaltLabel, grant_of

SALT_TAG = "cache_salt"

# KV events are made with the name that these modules imported before `install` rebinds it in
# kv_cache_utils: stock's version, which publishes the label and never the salt.
PUBLISHERS = (block_pool, kv_offload_manager)

_stock_extra_keys = kv_cache_utils.generate_block_hash_extra_keys


def salted_extra_keys(
    request: Any, start_token_idx: int, end_token_idx: int, start_mm_idx: int
) -> tuple[tuple[tuple[Any, ...], ...], int]:
    """The extra keys of one block: the tenant's salt, then vLLM's own, each tagged.

    Raises:
        UnsaltedRequest: the request carries no grant.
    """
    grant = grant_of(request.cache_salt)
    if grant is None:
        raise UnsaltedRequest("a request without a verified ticket has no block hashes")
    stock, next_mm_idx = _stock_extra_keys(request, start_token_idx, end_token_idx, start_mm_idx)
    own = (key for key in stock or () if key[0] != SALT_TAG)
    return ((SALT_TAG, grant.salt), *own), next_mm_idx


def install() -> None:
    """Makes vLLM's hasher, which resolves the name at each call, use the salted extra keys."""
    kv_cache_utils.generate_block_hash_extra_keys = salted_extra_keys


def problems() -> list[str]:
    """Why the hook is not live; empty when it is."""
    found = []
    if kv_cache_utils.generate_block_hash_extra_keys is not salted_extra_keys:
        found.append("the salted block hash is not live: start with `saltwall engine`")
    for module in PUBLISHERS:
        name = getattr(module, "generate_block_hash_extra_keys", _stock_extra_keys)
        if name is salted_extra_keys:
            found.append(f"{module.__name__} would publish salts: do not import the plugin late")
    return found


def vector_digest() -> str:
    """SHA-256 over the hashes that vLLM's hasher computes for the published vectors, in order.

    Sets vLLM's NONE_HASH for `sha256_cbor`, as EngineCore does.
    """
    from vllm.utils.hashing import sha256_cbor

    kv_cache_utils.init_none_hash(sha256_cbor)
    vectors = json.loads(files(__package__).joinpath("vectors.json").read_text())["vectors"]
    digest = hashlib.sha256()
    for vector in vectors:
        hasher = kv_cache_utils.get_request_block_hasher(vector["block_size"], sha256_cbor)
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
