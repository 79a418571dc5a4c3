"""A vLLM config of a model without weights or tokenizer, and what else a Saltwall engine needs."""

import json
import os
from pathlib import Path
from typing import Any

from bare_core import BLOCK

from saltwall_tenants.wire import EngineKeys, TicketRoot

MODEL_LEN = 65_536


def set_environment() -> None:
    """What `saltwall engine` sets; to be called before vLLM is imported."""
    os.environ |= {
        "VLLM_PLUGINS": "saltwall",
        "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": "0",
        "HF_HUB_OFFLINE": "1",
    }
    os.environ.pop("PYTHONHASHSEED", None)


def write_model(directory: Path) -> None:
    """Writes a Llama config, all that vLLM's scheduler wants of a model."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "vocab_size": 1000,
        "max_position_embeddings": MODEL_LEN,
        "torch_dtype": "float32",
    }
    (directory / "config.json").write_text(json.dumps(config))


def write_keys(directory: Path) -> EngineKeys:
    """Writes the keys of an engine called demo, where the scheduler will read them."""
    keys = TicketRoot(b"r" * 32).engine_keys("demo")
    path = directory / "engine-demo.json"
    keys.write(path)
    os.environ["SALTWALL_ENGINE_KEYS"] = str(path)
    return keys


def engine_config(
    model: Path,
    *,
    asynchronous: bool = False,
    blocks: int = 64,
    running: int = 8,
    step_tokens: int = 512,
    model_len: int = 512,
    **parts: Any,
) -> Any:
    """A VllmConfig that the engine accepts, before the changes a test asks for.

    Args:
        model: the directory of `write_model`.
        asynchronous: vLLM's asynchronous scheduler.
        blocks: KV blocks in the pool.
        running: the most requests that run at once.
        step_tokens: the most tokens in a step.
        model_len: the most tokens of a request.
        parts: whole sections of the config instead of these.
    """
    from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig

    cache = CacheConfig(
        block_size=BLOCK,
        enable_prefix_caching=True,
        prefix_caching_hash_algo="sha256_cbor",
    )
    cache.num_gpu_blocks = blocks
    scheduler = SchedulerConfig(
        max_num_seqs=running,
        max_num_batched_tokens=step_tokens,
        max_model_len=model_len,
        is_encoder_decoder=False,
        async_scheduling=asynchronous,
        scheduler_cls="saltwall_engine.scheduler.scheduler_class",
    )
    described = ModelConfig(
        model=str(model), skip_tokenizer_init=True, max_model_len=model_len, dtype="float32"
    )
    config = VllmConfig(
        **{"model_config": described, "cache_config": cache, "scheduler_config": scheduler} | parts
    )
    config.scheduler_config.async_scheduling = asynchronous  # vLLM's CPU platform turns it off
    config.structured_outputs_config.backend = "xgrammar"
    return config
