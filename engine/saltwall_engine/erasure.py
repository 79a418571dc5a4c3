"""Overwrites KV blocks in the workers' memory, in order with the steps that use them.

Workers carry out what the engine core sends them one after another, and a device what its stream is
given. So a block whose overwriting is sent before a step is overwritten when that step begins, and
after whatever an earlier step still wrote to it; no block has to be kept back meanwhile.
"""

import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from vllm.v1.executor.abstract import Executor
from vllm.v1.executor.multiproc_executor import MultiprocExecutor
from vllm.v1.executor.uniproc_executor import UniProcExecutor

from saltwall_engine.errors import BootRefused

VARIABLE = "SALTWALL_ZEROIZE"
CPU_BATCH_BYTES, BATCH_BYTES = 128 * 2**20, 2 * 2**30
"""What is overwritten at once: 30 ms on a core, and a millisecond or two on a GPU."""

_log = logging.getLogger("vllm.saltwall")


def is_on() -> bool:
    """Whether purged blocks are overwritten.

    Raises:
        BootRefused: the environment says neither 0 nor 1.
    """
    text = os.environ.get(VARIABLE, "1")
    if text not in ("0", "1"):
        raise BootRefused([f"{VARIABLE} is {text!r}: give 1 to overwrite purged KV blocks, or 0"])
    return text == "1"


def batch_bytes(config: Any) -> int:
    """How much one call may overwrite on this config's device (bytes)."""
    return CPU_BATCH_BYTES if config.device_config.device_type == "cpu" else BATCH_BYTES


def problems(config: Any) -> list[str]:
    """Why a vLLM config cannot overwrite purged blocks as asked."""
    if not is_on() or issubclass(Executor.get_class(config), UniProcExecutor | MultiprocExecutor):
        return []
    backend = config.parallel_config.distributed_executor_backend
    return [
        f"--distributed-executor-backend {backend} may overwrite a purged KV block too late: use "
        f"mp, uni, or Ray with VLLM_USE_RAY_V2_EXECUTOR_BACKEND=1, or set {VARIABLE}=0"
    ]


def rows(caches: Iterable[torch.Tensor], num_blocks: int) -> Iterator[torch.Tensor]:
    """Views of KV caches whose first dimension is the scheduler's block id; each byte in one.

    As vLLM's own `copy_kv_cache_blocks_inplace` (v1/worker/utils.py): several layers may share an
    allocation, and a scheduler's block may be several of the attention kernel's.
    """
    seen = set()
    for cache in caches:
        kernel_blocks = cache.shape[0] // num_blocks
        storage = cache.untyped_storage()
        whole = storage.nbytes() == (
            num_blocks * kernel_blocks * cache.stride(0) * cache.element_size()
        )
        key = (cache.device, storage.data_ptr() if whole else cache.data_ptr())
        if key in seen:
            continue
        seen.add(key)
        if whole:
            word = torch.int64 if storage.nbytes() % (8 * num_blocks) == 0 else torch.uint8
            words = torch.empty(0, dtype=word, device=cache.device)
            words.set_(storage)
            yield words.view(num_blocks, -1)
        else:
            same = cache.view(torch.uint8) if cache.element_size() == 1 else cache
            yield same.unflatten(0, (num_blocks, kernel_blocks))


def overwrite(worker: Any, block_ids: list[int]) -> None:
    """Writes zeros over blocks; runs in each worker, between steps."""
    runner = worker.model_runner
    with torch.inference_mode():  # the caches were made in it
        index = torch.tensor(block_ids, dtype=torch.int64, device=runner.kv_caches[0].device)
        for blocks in rows(runner.kv_caches, runner.kv_cache_config.num_blocks):
            blocks.index_fill_(0, index, 0)


class Eraser:
    """Sends blocks to be overwritten to all workers, and keeps account of it."""

    def __init__(self, executor: Any) -> None:
        """Overwrites the null block, which nobody reads, to see that it can be done.

        Raises:
            BootRefused: it cannot.
        """
        self._executor = executor
        self._sent: deque[tuple[Any, int]] = deque()
        self.erased = self.failed = 0
        """Blocks that were overwritten, and that could not be."""
        try:
            executor.collective_rpc(overwrite, args=([0],))
        except Exception as error:  # whatever the worker says of its memory
            raise BootRefused(
                [f"KV blocks cannot be overwritten here ({error}): set {VARIABLE}=0"]
            ) from None

    def send(self, block_ids: list[int]) -> None:
        """Has blocks overwritten before the next step that is sent."""
        self.outstanding(wait=False)
        future = self._executor.collective_rpc(overwrite, args=(block_ids,), non_block=True)
        self._sent.append((future, len(block_ids)))

    def outstanding(self, wait: bool) -> int:
        """How many blocks have been sent and not been reported as overwritten.

        Args:
            wait: for all of them. For an engine at rest: no step will bring their reports in.
        """
        while self._sent and (wait or self._sent[0][0].done()):
            future, blocks = self._sent.popleft()
            try:
                future.result()
            except Exception:  # the worker has logged it
                self.failed += blocks
                _log.error("Saltwall: %d purged KV blocks could not be overwritten", blocks)
            else:
                self.erased += blocks
        return sum(blocks for _, blocks in self._sent)
