"""The tenant's salt is in every block hash, exactly as published."""

import copy
import json
import pickle
from collections.abc import Iterator
from importlib.resources import files
from itertools import repeat
from typing import Any

import msgspec
import pytest
from bare_core import ACME, BLOCK, GLOBEX, grant

UNSALTED = b"\xf6"
"""CBOR's null, which vLLM hashes for a block without extra keys."""

VECTORS = json.loads(files("saltwall_engine").joinpath("vectors.json").read_text())


@pytest.mark.parametrize("vector", VECTORS["vectors"])
def test_vllms_own_hasher_computes_the_published_vectors(hooks: None, vector: Any) -> None:
    """Salt, tokens, LoRA and multimodal keys hash to the published bytes, block by block."""
    from vllm.utils.hashing import sha256_cbor
    from vllm.v1.core import kv_cache_utils

    from saltwall_engine.block_hash import vector_request

    kv_cache_utils.init_none_hash(sha256_cbor)
    hasher = kv_cache_utils.get_request_block_hasher(vector["block_size"], sha256_cbor)
    hashes = [block_hash.hex() for block_hash in vector_request(vector, hasher).block_hashes]
    assert hashes == vector["block_hashes"]
    assert kv_cache_utils.NONE_HASH.hex() == VECTORS["none_hash"]


def test_the_self_test_notices_a_salt_that_is_missing_from_later_blocks(
    hooks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With vLLM's own rule, the salt in the first block only, the vector digest is another."""
    from saltwall_engine import block_hash
    from saltwall_tenants.wire import VECTOR_DIGEST

    def first_block_only(request: Any, start: int, size: int) -> Iterator[bytes]:
        encoded = salted(request, start, size)
        yield next(encoded) if start == 0 else UNSALTED
        yield from repeat(UNSALTED)

    assert block_hash.vector_digest() == VECTOR_DIGEST
    salted = block_hash._encoded_extra_keys
    monkeypatch.setattr(block_hash, "_encoded_extra_keys", first_block_only)
    assert block_hash.vector_digest() != VECTOR_DIGEST


@pytest.mark.parametrize("name", ["kv_cache_utils", "core"])
def test_a_hasher_that_is_not_ours_is_noticed(
    hooks: None, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Boot notices another hasher wherever vLLM looks one up; EngineCore's fails the vectors."""
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.engine import core

    from saltwall_engine import block_hash
    from saltwall_tenants.wire import VECTOR_DIGEST

    def another(size: int, *rest: Any) -> Any:
        return lambda request: [b"?" * 32] * (request.num_tokens // size)

    module = {"kv_cache_utils": kv_cache_utils, "core": core}[name]
    monkeypatch.setattr(module, "get_request_block_hasher", another)
    assert block_hash.problems()
    assert (block_hash.vector_digest() == VECTOR_DIGEST) is (module is kv_cache_utils)


def test_another_salt_changes_every_block(make_core: Any) -> None:
    """Two tenants with one prompt share no block hash; one tenant with one prompt shares all."""
    core = make_core()
    tokens = list(range(BLOCK * 5))
    acme = core.request(tokens, grant(ACME)).block_hashes
    again = core.request(tokens, grant(ACME)).block_hashes
    globex = core.request(tokens, grant(GLOBEX)).block_hashes
    assert acme == again
    assert len(acme) == 5
    assert not set(acme) & set(globex)


def test_every_block_is_salted_by_itself(hooks: None) -> None:
    """The salt stands in each block's own input, not only in the chain behind it."""
    from types import SimpleNamespace

    from saltwall_engine.block_hash import salted_extra_keys
    from saltwall_engine.salt_label import SaltLabel

    request = SimpleNamespace(
        cache_salt=SaltLabel(grant()), mm_features=[], lora_request=None, prompt_embeds=None
    )
    for start in (0, BLOCK, 10 * BLOCK):
        keys, _ = salted_extra_keys(request, start, start + BLOCK, 0)
        assert keys == (("cache_salt", grant().salt),)


@pytest.mark.parametrize("cache_salt", [None, "", "sw1.x", "0123456789abcdef"])
def test_a_request_without_a_grant_has_no_hashes(make_core: Any, cache_salt: Any) -> None:
    """No text in `cache_salt`, not even the right label, stands in for a verified ticket."""
    from saltwall_engine.errors import UnsaltedRequest

    core = make_core()
    with pytest.raises(UnsaltedRequest):
        core.request(list(range(BLOCK)), cache_salt)


def test_only_the_hasher_sees_the_salt() -> None:
    """Text, repr, pickle, deep copy of a label carry the label alone; messages refuse it."""
    from saltwall_engine.salt_label import SaltLabel, grant_of

    label = SaltLabel(grant(salt=b"secret-salt-32-bytes-secret-salt"))
    assert grant_of(label) is not None
    assert "secret" not in f"{label!s} {label!r} {label.grant!r}"
    with pytest.raises(TypeError):
        msgspec.msgpack.encode(label)
    for copied in (pickle.loads(pickle.dumps(label)), copy.deepcopy(label)):  # noqa: S301
        assert copied == label
        assert grant_of(copied) is None


def test_what_publishes_events_keeps_stocks_keys(hooks: None) -> None:
    """KV events, were they on, would publish the label and never the salt."""
    from vllm.v1.core import block_pool

    from saltwall_engine import block_hash
    from saltwall_engine.salt_label import SaltLabel

    request = type("R", (), {"cache_salt": SaltLabel(grant()), "mm_features": []})()
    request.lora_request = request.prompt_embeds = None
    keys, _ = block_pool.generate_block_hash_extra_keys(request, 0, BLOCK, 0)
    assert keys == (("cache_salt", str(request.cache_salt)),)
    assert block_hash.problems() == []
