"""vLLM's own Scheduler, pool and Request without a model: a config folder, and no weights."""

import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ |= {
    "VLLM_PLUGINS": "saltwall",
    "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": "0",
    "HF_HUB_OFFLINE": "1",
}
os.environ.pop("PYTHONHASHSEED", None)

from bare_core import BLOCK, Core

from saltwall_tenants.wire import EngineKeys, TicketRoot


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama config without weights or tokenizer."""
    path = tmp_path_factory.mktemp("model")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "vocab_size": 1000,
        "max_position_embeddings": 2048,
        "torch_dtype": "float32",
    }
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.fixture(scope="session")
def engine_keys(tmp_path_factory: pytest.TempPathFactory) -> EngineKeys:
    """The keys of an engine called demo, also in the file that the scheduler reads."""
    keys = TicketRoot(b"r" * 32).engine_keys("demo")
    path = tmp_path_factory.mktemp("keys") / "engine-demo.json"
    keys.write(path)
    os.environ["SALTWALL_ENGINE_KEYS"] = str(path)
    return keys


@pytest.fixture(scope="session")
def hooks(engine_keys: EngineKeys) -> None:
    """The plugin's hooks, live in this process as `register` makes them."""
    from saltwall_engine import plugin

    plugin.register()


@pytest.fixture(autouse=True)
def _own_record_factory() -> Iterator[None]:
    """An engine that begins to serve changes how this whole process logs; a test must not."""
    before = logging.getLogRecordFactory()
    yield
    logging.setLogRecordFactory(before)


@pytest.fixture
def make_config(model_dir: Path, hooks: None) -> Callable[..., Any]:
    """Builds a VllmConfig that the engine accepts, before the changes a test asks for."""
    from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig

    def make(*, asynchronous: bool = False, **parts: Any) -> Any:
        cache = CacheConfig(
            block_size=BLOCK,
            enable_prefix_caching=True,
            prefix_caching_hash_algo="sha256_cbor",
        )
        cache.num_gpu_blocks = 64
        scheduler = SchedulerConfig(
            max_num_seqs=8,
            max_num_batched_tokens=512,
            max_model_len=512,
            is_encoder_decoder=False,
            async_scheduling=asynchronous,
            scheduler_cls="saltwall_engine.scheduler.scheduler_class",
        )
        model = ModelConfig(
            model=str(model_dir), skip_tokenizer_init=True, max_model_len=512, dtype="float32"
        )
        config = VllmConfig(
            **{"model_config": model, "cache_config": cache, "scheduler_config": scheduler} | parts
        )
        config.structured_outputs_config.backend = "xgrammar"
        return config

    return make


@pytest.fixture
def make_core(make_config: Callable[..., Any]) -> Callable[..., Core]:
    """Builds vLLM's scheduler, Saltwall's unless another class is asked for."""

    def make(scheduler_class: Any = None, **options: Any) -> Core:
        return Core(make_config(**options), scheduler_class)

    return make
