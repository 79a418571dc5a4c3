"""The directory in which vLLM's tests run: its `tests/`, model configs, and pytest settings."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent

FILES = (
    "tests/v1/core/prefix_cache",
    "tests/v1/core/test_async_scheduler.py",
    "tests/v1/core/test_deferred_block_free.py",
    "tests/v1/core/test_encoder_cache_manager.py",
    "tests/v1/core/test_kv_cache_metrics.py",
    "tests/v1/core/test_mamba_align_chunk_split.py",
    "tests/v1/core/test_output.py",
    "tests/v1/core/test_prefix_caching.py",
    "tests/v1/core/test_prefix_replay.py",
    "tests/v1/core/test_priority_preemption_bug.py",
    "tests/v1/core/test_scheduler.py",
    "tests/v1/core/test_single_type_kv_cache_manager.py",
    "tests/v1/core/test_swa_inflight_window_free.py",
    "tests/v1/core/test_worker_slot_overflow.py",
)

# Their shapes are the published models'; no weights and no tokenizer belong to them.
_OPT = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "activation_function": "relu",
    "max_position_embeddings": 2048,
    "vocab_size": 50272,
    "bos_token_id": 2,
    "eos_token_id": 2,
    "pad_token_id": 1,
    "torch_dtype": "float16",
}
_CONFIGS = {
    "facebook/opt-125m": {
        "hidden_size": 768,
        "word_embed_proj_dim": 768,
        "ffn_dim": 3072,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "do_layer_norm_before": True,
    },
    "facebook/opt-350m": {
        "hidden_size": 1024,
        "word_embed_proj_dim": 512,
        "ffn_dim": 4096,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "do_layer_norm_before": False,
    },
}

# A test that waits for a request that is never scheduled must end too.
_SETTINGS = """\
[pytest]
timeout = 120
markers =
    cpu_test: vLLM's
    optional: vLLM's
    skip_global_cleanup: vLLM's
    slow_test: vLLM's
"""


def vllm_version() -> str:
    """The installed vLLM's version, without the local part that names a build."""
    import vllm

    return vllm.__version__.partition("+")[0]


def furnish(place: Path) -> None:
    """Writes what the tests need beside the unpacked `tests/`."""
    for model, shape in _CONFIGS.items():
        (place / model).mkdir(parents=True, exist_ok=True)
        (place / model / "config.json").write_text(json.dumps(_OPT | shape, indent=2))
    (place / "pytest.ini").write_text(_SETTINGS)


def environment(place: Path, sources: bool, outer: Mapping[str, str]) -> dict[str, str]:
    """The environment of the tests: nothing of this machine's caches, settings, GPUs or network.

    Args:
        place: where they run.
        sources: use the source distribution's Python code, not the installed vLLM.
        outer: this process's environment.
    """
    path = [str(HERE), str(place / "sources") if sources else "", outer.get("PYTHONPATH", "")]
    ours = {k: v for k, v in outer.items() if not k.startswith(("VLLM_", "SALTWALL_", "HF_"))}
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONHASHSEED"):
        ours.pop(name, None)
    return ours | {
        "HF_HOME": str(place / "huggingface"),
        "HF_HUB_OFFLINE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "VLLM_CACHE_ROOT": str(place / "cache"),
        "VLLM_CONFIG_ROOT": str(place / "config"),
        "VLLM_PLUGINS": "",  # the entry point stays out: what is forced in is forced in by hand
        "VLLM_TARGET_DEVICE": "cpu",
    }
