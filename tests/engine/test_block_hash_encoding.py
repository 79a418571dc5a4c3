"""The salted hasher's bytes are CBOR's core deterministic encoding, for whatever a block holds."""

import hashlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import cbor2
import pytest
from bare_core import grant
from hypothesis import given
from hypothesis import strategies as st

EDGES = [0, 23, 24, 255, 256, 65535, 65536, 2**32 - 1, 2**32]
"""Token ids around each change of length in CBOR."""

token_ids = st.one_of(st.sampled_from(EDGES), st.integers(0, 2**32))
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=70)


@dataclass(frozen=True)
class Image:
    """A multimodal input and the tokens it stands for."""

    name: str
    offset: int
    length: int


@dataclass(frozen=True)
class Content:
    """What a request's block hashes depend on."""

    salt: bytes
    tokens: list[int]
    lora: tuple[str, str] | None
    images: list[Image]
    embeds: Any

    def extra_keys(self, start: int, end: int) -> list[list[Any]]:
        """The extra keys of the block of tokens [start, end), as DESIGN 3.1 has them."""
        keys: list[list[Any]] = [["cache_salt", self.salt]]
        if self.lora:
            keys.append(["lora", *self.lora])
        for image in self.images:
            if image.offset < end and start < image.offset + image.length:
                keys.append(["mm", image.name, image.offset - start])
        if self.embeds is not None:
            embedded = self.embeds[start:end].numpy().tobytes()
            keys.append(["prompt_embeds", hashlib.sha256(embedded).digest()])
        return keys

    def request(self, hasher: Any, prompt: int) -> Any:
        """A real Request of the first `prompt` tokens."""
        from vllm.lora.request import LoRARequest
        from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        from saltwall_engine.salt_label import SaltLabel

        return Request(
            request_id="r",
            prompt_token_ids=self.tokens[:prompt],
            sampling_params=SamplingParams(max_tokens=1),
            pooling_params=None,
            prompt_embeds=None if self.embeds is None else self.embeds[:prompt],
            lora_request=LoRARequest(self.lora[0], 1, self.lora[1]) if self.lora else None,
            mm_features=[
                MultiModalFeatureSpec(None, "image", i.name, PlaceholderRange(i.offset, i.length))
                for i in self.images
            ],
            cache_salt=SaltLabel(grant(salt=self.salt)),
            block_hasher=hasher,
        )


@st.composite
def contents(draw: st.DrawFn) -> Content:
    """Content of every kind and mixture of kinds of key."""
    import torch

    tokens = draw(st.lists(token_ids, min_size=1, max_size=120))
    edges = sorted(draw(st.sets(st.integers(0, len(tokens)), max_size=8)))
    lengths = [draw(st.integers(1, stop - start)) for start, stop in pairwise(edges)]
    embeds = torch.arange(len(tokens) * 2, dtype=torch.float32).reshape(-1, 2)
    return Content(
        salt=draw(st.binary(min_size=32, max_size=32)),
        tokens=tokens,
        lora=draw(st.none() | st.tuples(names.filter(bool), names.filter(bool))),
        images=[Image(draw(names), at, n) for at, n in zip(edges, lengths, strict=False)],
        embeds=draw(st.sampled_from([None, embeds])),
    )


def expected(content: Content, size: int) -> list[bytes]:
    """The chain of hashes, each over the encoding of the whole structure at once."""
    from vllm.v1.core import kv_cache_utils

    parent, chain = kv_cache_utils.NONE_HASH, []
    for start in range(0, len(content.tokens) - size + 1, size):
        end = start + size
        block = [parent, content.tokens[start:end], content.extra_keys(start, end)]
        parent = hashlib.sha256(cbor2.dumps(block, canonical=True)).digest()
        chain.append(parent)
    return chain


def by_vllm(request: Any, size: int) -> list[bytes]:
    """The chain of hashes that vLLM's own functions compute from the salted extra keys."""
    from vllm.utils.hashing import sha256_cbor
    from vllm.v1.core import kv_cache_utils

    from saltwall_engine.block_hash import salted_extra_keys

    parent, chain = None, []
    for start in range(0, request.num_tokens - size + 1, size):
        keys, _ = salted_extra_keys(request, start, start + size, 0)
        tokens = request.all_token_ids[start : start + size]
        parent = kv_cache_utils.hash_block_tokens(sha256_cbor, parent, tokens, keys)
        chain.append(parent)
    return chain


@pytest.fixture(scope="module", autouse=True)
def _none_hash(hooks: None) -> None:
    from vllm.utils.hashing import sha256_cbor
    from vllm.v1.core import kv_cache_utils

    kv_cache_utils.init_none_hash(sha256_cbor)


def salted_hasher(size: int) -> Any:
    """The hasher that EngineCore would use."""
    from vllm.utils.hashing import sha256_cbor
    from vllm.v1.engine import core

    return core.get_request_block_hasher(size, sha256_cbor)


@given(content=contents(), size=st.integers(1, 40), data=st.data())
def test_every_block_hashes_the_deterministic_encoding_of_its_parts(
    content: Content, size: int, data: st.DataObject
) -> None:
    """For any tokens and keys, as a prompt or appended piece by piece, bytes equal CBOR's whole."""
    prompt = len(content.tokens)
    if content.embeds is None:
        prompt = data.draw(st.integers(1, prompt))
    request = content.request(salted_hasher(size), prompt)
    while request.num_tokens < len(content.tokens):
        piece = data.draw(st.integers(1, 50))
        request.append_output_token_ids(content.tokens[request.num_tokens :][:piece])
    assert request.block_hashes == expected(content, size)
    assert request.block_hashes == by_vllm(request, size)


@pytest.mark.parametrize("size", [1, 23, 24, 255, 256, 65535, 65536])
@pytest.mark.parametrize("embedded", [False, True])
def test_blocks_of_every_header_length_are_encoded_exactly(size: int, embedded: bool) -> None:
    """The token array's header has one, two, three or five bytes, in either way of encoding."""
    import torch

    tokens = [EDGES[i % len(EDGES)] for i in range(2 * size)]
    embeds = torch.zeros(2 * size, 1) if embedded else None
    content = Content(b"s" * 32, tokens, None, [], embeds)
    request = content.request(salted_hasher(size), 2 * size)
    assert request.block_hashes == expected(content, size)
    assert len(request.block_hashes) == 2


def test_no_other_hash_is_made(hooks: None) -> None:
    """Another algorithm, or vLLM 0.33's hash over the following tokens, is refused at boot."""
    from vllm.utils.hashing import sha256, sha256_cbor

    from saltwall_engine.block_hash import get_request_block_hasher
    from saltwall_engine.errors import BootRefused

    for arguments in ((16, sha256), (16, sha256_cbor, 1)):
        with pytest.raises(BootRefused, match="sha256_cbor"):
            get_request_block_hasher(*arguments)
