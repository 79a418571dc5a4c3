"""Block hashes: the engine's against our own, weak ones in its pool, and how fast they are."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from saltwall_security.bench.bench import Bench
from saltwall_security.bench.engine import BLOCK, VOCABULARY
from saltwall_security.collision.block_hash import block_hashes
from saltwall_security.collision.cbor import Value
from saltwall_security.collision.weak import PARENT

ALGORITHMS = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")
"""Those that vLLM offers (`--prefix-caching-hash-algo`)."""
TENANTS = ("victim", "stranger")
_WIDTH = 8


def compare_hashes(bench: Bench, seed: str, count: int) -> Mapping[str, Any] | None:
    """Hashes random prompts with every kind of key in the engine, and anew.

    Returns:
        How many blocks were compared and differed, by the kinds of key on them; None where the
        scheduler does not claim to hash as is described.
    """
    if not bench.dialect.has_tenants:
        return None
    rng = random.Random(seed)  # noqa: S311  # reproducible, and guards nothing
    engine = bench.engine()
    for tenant in TENANTS:
        engine.authorise(tenant, 1)
    compared: dict[str, int] = {}
    differing: dict[str, int] = {}
    for i in range(count):
        tenant = TENANTS[i % 2]
        prompt = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 6) * BLOCK + 3)]
        raw = engine.raw(tenant, prompt, 1, bench.dialect.credential(tenant, 1))
        extra = _Extra(rng, len(prompt))
        extra.put_on(raw)
        request = engine.core.preprocess_add_request(raw)[0]
        if not extra.embeds:
            output = [rng.randrange(VOCABULARY) for _ in range(2 * BLOCK)]
            request.append_output_token_ids(output)
        tokens = list(request.all_token_ids)
        keys = [extra.keys(start) for start in range(0, len(tokens), BLOCK)]
        ours = block_hashes(tokens, BLOCK, bench.dialect.salt(tenant, 1), keys)
        kind = extra.name
        compared[kind] = compared.get(kind, 0) + len(ours)
        wrong = abs(len(ours) - len(request.block_hashes)) + sum(
            a != b for a, b in zip(ours, request.block_hashes, strict=False)
        )
        differing[kind] = differing.get(kind, 0) + wrong
    return {"compared": compared, "differing": differing}


class _Extra:
    """Random keys of a request besides its salt, and what the description makes of them."""

    def __init__(self, rng: random.Random, length: int) -> None:
        self.lora = ("adapter", "/adapters/a") if rng.random() < 0.3 else None
        self.embeds: list[list[float]] = []
        self.images: list[tuple[str, int, int]] = []
        if rng.random() < 0.2:
            self.embeds = [[rng.random() for _ in range(_WIDTH)] for _ in range(length)]
        elif rng.random() < 0.5:
            at = rng.randrange(BLOCK)
            while at < length:
                size = min(rng.randint(1, 3 * BLOCK), length - at)
                self.images.append((f"image-{rng.randrange(9)}", at, size))
                at += size + rng.randint(0, BLOCK)
        kinds = {"lora": self.lora, "mm": self.images, "prompt_embeds": self.embeds}
        self.name = "+".join(["cache_salt", *(kind for kind, there in kinds.items() if there)])

    def put_on(self, raw: Any) -> None:
        """Gives an EngineCoreRequest these keys, as vLLM's objects."""
        from vllm.lora.request import LoRARequest
        from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

        if self.lora:
            raw.lora_request = LoRARequest(self.lora[0], 1, self.lora[1])
        if self.embeds:
            raw.prompt_token_ids, raw.prompt_embeds = None, self._tensor()
        raw.mm_features = [
            MultiModalFeatureSpec(
                data=None,
                modality="image",
                identifier=name,
                mm_position=PlaceholderRange(offset=at, length=size),
            )
            for name, at, size in self.images
        ] or None

    def _tensor(self) -> Any:
        import torch

        return torch.tensor(self.embeds, dtype=torch.float32)

    def keys(self, start: int) -> list[Sequence[Value]]:
        """The keys of the block that begins at a token, in vLLM's order."""
        found: list[Sequence[Value]] = [["lora", *self.lora]] if self.lora else []
        found += [
            ["mm", name, at - start]
            for name, at, size in self.images
            if at < start + BLOCK and at + size > start
        ]
        if self.embeds:
            rows = self._tensor()[start : start + BLOCK].contiguous().numpy().tobytes()
            found.append(["prompt_embeds", sha256(rows).digest()])
        return found


def collide(
    bench: Bench, first: Sequence[int], second: Sequence[int], algorithm: str
) -> Mapping[str, int]:
    """Caches one block for a tenant under a weak hash, and asks for another for a stranger.

    Args:
        bench: the scheduler's.
        first: the block's tokens.
        second: other tokens with the same weak hash.
        algorithm: "builtin" for Python's `hash`, or one of vLLM's; it hashes parent and tokens, so
            that no salt comes between.
    """
    block = len(first)
    engine = bench.engine(blocks=8, block_tokens=block)
    hasher = _weak_hasher(algorithm, block)
    victim, stranger = TENANTS
    engine.serve(victim, [*first, 1], hasher=hasher)
    own = engine.serve(victim, [*second, 1], hasher=hasher)
    served = engine.serve(stranger, [*second, 1], hasher=hasher)
    return {"own_tokens": own, "stranger_tokens": served, "block_tokens": block}


def _weak_hasher(algorithm: str, block: int) -> Callable[[Any], list[bytes]]:
    function = _builtin if algorithm == "builtin" else _algorithm(algorithm)

    def hasher(request: Any) -> list[bytes]:
        hashes = list(request.block_hashes)
        have = len(hashes)
        for i in range(have, request.num_tokens // block):
            tokens = tuple(request.all_token_ids[i * block : (i + 1) * block])
            hashes.append(function((hashes[-1] if hashes else PARENT, tokens, None)))
        return hashes[have:]

    return hasher


def _builtin(value: Any) -> bytes:
    return (hash(value) & 2**64 - 1).to_bytes(8, "big")


def _algorithm(name: str) -> Callable[[Any], bytes]:
    from vllm.utils.hashing import get_hash_fn_by_name

    function: Callable[[Any], bytes] = get_hash_fn_by_name(name)
    return function


def time_algorithms(bench: Bench, each_s: float) -> Mapping[str, float | None]:
    """What vLLM's algorithms take for a block of 16 tokens with a salt (microseconds).

    Args:
        bench: whose process it is measured in.
        each_s: how long to measure each (seconds).

    Returns:
        None for those that this installation lacks the library for.
    """
    value = (bytes(32), tuple(range(1000, 1000 + BLOCK)), (("cache_salt", "s" * 64),))
    found: dict[str, float | None] = {}
    for name in ALGORITHMS:
        function = _algorithm(name)
        try:
            function(value)
        except ModuleNotFoundError:
            found[name] = None
            continue
        # The fastest of several rounds: whatever else runs here only ever adds to the others.
        rounds: list[float] = []
        ends = time.perf_counter() + each_s
        while time.perf_counter() < ends or not rounds:
            began = time.perf_counter()
            for _ in range(500):
                function(value)
            rounds.append((time.perf_counter() - began) / 500 * 1e6)
        found[name] = round(min(rounds), 2)
    return found
