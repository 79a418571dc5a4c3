"""An engine attests the size of its KV cache, and reckons a request's blocks as vLLM does."""

from types import SimpleNamespace
from typing import Any

import pytest
from bare_core import BLOCK

from saltwall_engine.capacity import Group, blocks_for, capacity_of, groups_of
from saltwall_tenants.wire import Attestation, Capacity

LONGEST = 512
WINDOW, STEP = 64, 128


@pytest.fixture
def hybrid(hooks: None) -> Any:
    """vLLM's KV cache manager over a full-attention group and one with a window."""
    import torch
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.kv_cache_interface import (
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        SlidingWindowSpec,
    )

    shape = {"block_size": BLOCK, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    config = KVCacheConfig(
        num_blocks=100,
        kv_cache_tensors=[],
        kv_cache_groups=[
            KVCacheGroupSpec(["full"], FullAttentionSpec(**shape)),
            KVCacheGroupSpec(["window"], SlidingWindowSpec(**shape, sliding_window=WINDOW)),
        ],
    )
    manager = KVCacheManager(
        config,
        max_model_len=LONGEST,
        scheduler_block_size=BLOCK,
        hash_block_size=BLOCK,
        max_in_flight_tokens=STEP,
    )
    return SimpleNamespace(kv_cache_manager=manager, kv_cache_config=config)


def admitted(scheduler: Any, tokens: int) -> int:
    """What vLLM's own gate demands before it admits so many tokens."""
    coordinator = scheduler.kv_cache_manager.coordinator
    return int(
        coordinator.get_num_blocks_to_allocate(
            request_id="r",
            num_tokens=tokens,
            new_computed_blocks=tuple([] for _ in coordinator.single_type_managers),
            num_encoder_tokens=0,
            total_computed_tokens=0,
            num_local_computed_tokens=0,
            num_tokens_main_model=tokens,
            apply_admission_cap=True,
        )
    )


async def test_an_engine_attests_its_size(make_core: Any, engine_keys: Any) -> None:
    """All blocks but the null block; no bytes, since without a model no memory is laid out."""
    from saltwall_engine.api_state import ApiState

    state = ApiState(engine_keys, make_core())
    await state.attest()
    assert state.attestation is not None
    attested = Attestation.decode(state.attestation.encode())
    assert attested.capacity == Capacity(blocks=63, block_tokens=BLOCK, block_bytes=None, groups=1)


def test_the_bytes_of_a_block_are_counted_once(make_core: Any) -> None:
    """Every tensor of vLLM's plan repeats the size of the one allocation that all are views of."""
    from vllm.v1.kv_cache_interface import KVCacheTensor

    scheduler = make_core().scheduler
    size = scheduler.kv_cache_config.num_blocks * 4096
    scheduler.kv_cache_config.kv_cache_tensors = [
        KVCacheTensor(size=size, layers=[name], layer_stride=2048, block_stride=2048)
        for name in ("one", "other")
    ]
    assert capacity_of(scheduler).block_bytes == 4096


def test_one_full_group_is_counted_exactly(make_core: Any) -> None:
    """To the block, for every length, and beyond the longest request nothing more."""
    scheduler = make_core().scheduler
    assert groups_of(scheduler) == [Group(BLOCK)]
    blocks = blocks_for(groups_of(scheduler), LONGEST)
    assert [blocks(n) for n in range(LONGEST + 1)] == [
        admitted(scheduler, n) for n in range(LONGEST + 1)
    ]
    assert blocks(LONGEST + 9) == blocks(LONGEST)


def test_a_window_is_counted_as_vllm_admits_it(hybrid: Any) -> None:
    """Both groups grow until the window is full; then only the full one does."""
    blocks = blocks_for(groups_of(hybrid), LONGEST)
    assert [blocks(n) for n in range(LONGEST + 1)] == [
        admitted(hybrid, n) for n in range(LONGEST + 1)
    ]
    full = LONGEST // BLOCK
    assert full < blocks(LONGEST) < 2 * full


def test_a_hybrid_attests_its_groups(hybrid: Any) -> None:
    """A token takes a place in a block of each."""
    assert capacity_of(hybrid) == Capacity(99, BLOCK, None, 2)
