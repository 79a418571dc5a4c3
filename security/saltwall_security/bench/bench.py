"""Builds vLLM's EngineCore around a scheduler of any class, without a model or weights."""

import queue
from typing import Any

from saltwall_security.bench.clock import Clock
from saltwall_security.bench.dialect import Dialect
from saltwall_security.bench.engine import Engine, Shape


class Bench:
    """What engines are built from in one process: a scheduler's class, its dialect, a model."""

    def __init__(self, factory: Any, dialect: Dialect, model: str, clock: Clock) -> None:
        """
        Args:
            factory: the scheduler's class, or a function that builds one.
            dialect: how it is spoken to.
            model: a directory with a model's config.
            clock: what it takes for the time.
        """
        self.factory, self.dialect, self.model, self.clock = factory, dialect, model, clock

    def engine(self, **shape: Any) -> Engine:
        """A new engine, of `Shape`'s size unless said otherwise."""
        size = Shape(**shape)
        return Engine(self._core(size), size, self.dialect, self.clock)

    def _core(self, shape: Shape) -> Any:
        """An EngineCore with nothing in it but a scheduler."""
        import vllm.v1.engine.core as engine_core
        from vllm.utils.hashing import sha256_cbor
        from vllm.v1.structured_output import StructuredOutputManager

        config = self._config(shape)
        core = engine_core.EngineCoreProc.__new__(engine_core.EngineCoreProc)
        core.vllm_config = config
        core.structured_output_manager = StructuredOutputManager(config)
        core.scheduler = self.factory(
            vllm_config=config,
            kv_cache_config=self._kv_cache(shape),
            structured_output_manager=core.structured_output_manager,
            block_size=shape.block_tokens,
            log_stats=True,
        )
        engine_core.init_none_hash(sha256_cbor)
        core.request_block_hasher = engine_core.get_request_block_hasher(
            shape.block_tokens, sha256_cbor
        )
        core.mm_receiver_cache = None
        core.output_queue = queue.Queue()
        return core

    def _config(self, shape: Shape) -> Any:
        from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig

        cache = CacheConfig(
            block_size=shape.block_tokens,
            enable_prefix_caching=True,
            prefix_caching_hash_algo="sha256_cbor",
        )
        cache.num_gpu_blocks = shape.blocks + 1  # one is vLLM's null block
        scheduler = SchedulerConfig(
            max_num_seqs=shape.slots,
            max_num_batched_tokens=shape.step_tokens,
            max_model_len=shape.model_tokens,
            is_encoder_decoder=False,
            async_scheduling=shape.asynchronous,
            **self.dialect.config(),
        )
        model = ModelConfig(
            model=self.model,
            skip_tokenizer_init=True,
            max_model_len=shape.model_tokens,
            dtype="float32",
        )
        config = VllmConfig(model_config=model, cache_config=cache, scheduler_config=scheduler)
        config.scheduler_config.async_scheduling = shape.asynchronous  # off on vLLM's CPU platform
        config.structured_outputs_config.backend = "xgrammar"
        return config

    def _kv_cache(self, shape: Shape) -> Any:
        import torch
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

        spec = FullAttentionSpec(
            block_size=shape.block_tokens, num_kv_heads=1, head_size=1, dtype=torch.float32
        )
        return KVCacheConfig(
            num_blocks=shape.blocks + 1,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        )
