"""How large an engine's KV cache is, and how many blocks one request needs of it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from vllm.v1.kv_cache_interface import MambaSpec

from saltwall_tenants.wire import Capacity


class Group(NamedTuple):
    """One KV cache group: the tokens that a block holds, and the most blocks of one request."""

    block_tokens: int
    most: int | None = None


def capacity_of(scheduler: Any) -> Capacity:
    """What the scheduler's pool holds.

    The bytes of a block are those on one worker: vLLM lays all layers out in one allocation, whose
    size each of its tensors repeats (`KVCacheTensor`). Without a model there is none.
    """
    config = scheduler.kv_cache_config
    sizes = {tensor.size for tensor in config.kv_cache_tensors}
    groups = groups_of(scheduler)
    return Capacity(
        blocks=scheduler.kv_cache_manager.block_pool.num_gpu_blocks - 1,
        block_tokens=min(group.block_tokens for group in groups),
        block_bytes=max(sizes) // config.num_blocks if sizes else None,
        groups=len(groups),
    )


def groups_of(scheduler: Any) -> list[Group]:
    """The KV cache groups, each as vLLM's own admission gate reckons with it.

    A group that keeps a window recycles blocks, so that a request never holds more than its cap.
    One that keeps a state (Mamba) has other rules still: it counts as a block, never too many.
    """
    return [
        Group(
            manager.block_size,
            1
            if isinstance(manager.kv_cache_spec, MambaSpec)
            else manager.max_admission_blocks_per_request,
        )
        for manager in scheduler.kv_cache_manager.coordinator.single_type_managers
    ]


def blocks_for(groups: Sequence[Group], max_model_len: int) -> Callable[[int], int]:
    """Makes the function from tokens of one request to the blocks that it needs.

    Exact for one full-attention group; with windows it is what a request holds at its peak.

    Args:
        groups: the KV cache groups.
        max_model_len: the longest request; places beyond it are never taken.
    """

    def blocks(tokens: int) -> int:
        tokens = min(tokens, max_model_len)
        counts = (-(-tokens // group.block_tokens) for group in groups)
        return sum(
            count if group.most is None else min(count, group.most)
            for count, group in zip(counts, groups, strict=True)
        )

    return blocks
