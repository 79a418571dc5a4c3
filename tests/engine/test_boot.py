"""The engine refuses to start with whatever would go around the salt, the ticket or the policy."""

import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest


def change(path: str, value: Any) -> Callable[[Any], None]:
    """Sets one field of a config."""

    def apply(config: Any) -> None:
        *parents, name = path.split(".")
        for parent in parents:
            config = getattr(config, parent)
        object.__setattr__(config, name, value)

    return apply


BAD_CONFIGS = {
    "--prefix-caching-hash-algo": change("cache_config.prefix_caching_hash_algo", "sha256"),
    "xxhash_cbor": change("cache_config.prefix_caching_hash_algo", "xxhash_cbor"),
    "--no-enable-prefix-caching": change("cache_config.enable_prefix_caching", False),
    "--scheduler-cls": change("scheduler_config.scheduler_cls", None),
    "saltwall engine": change("scheduler_config.scheduler_cls", "vllm.v1.core.sched.scheduler.X"),
    "--watermark": change("scheduler_config.watermark", 0.01),
    "--scheduling-policy": change("scheduler_config.policy", "priority"),
    "--kv-events-config": change(
        "kv_events_config", SimpleNamespace(enable_kv_cache_events=True, publisher="null")
    ),
    "--kv-transfer-config": change("kv_transfer_config", SimpleNamespace()),
    "--kv-offloading-size": change("cache_config.kv_offloading_size", 1.0),
    "--ec-transfer-config": change("ec_transfer_config", SimpleNamespace()),
    "multimodal": change(
        "model_config",
        SimpleNamespace(is_multimodal_model=True, is_encoder_decoder=False, model="llava"),
    ),
    "suffix decoding": change("speculative_config", SimpleNamespace(method="suffix")),
    "custom class": change("speculative_config", SimpleNamespace(method="custom_class")),
    "xgrammar": change("structured_outputs_config.backend", "auto"),
    "--structured-outputs-config": change("structured_outputs_config.backend", "guidance"),
    "HiSparse": change("attention_config.hisparse_config", SimpleNamespace()),
    "--enable-return-routed-experts": change("aux_output_config", SimpleNamespace(enabled=True)),
    "--api-server-count": change("parallel_config._api_process_count", 2),
    "--data-parallel-size": change("parallel_config.data_parallel_size", 2),
}


def test_a_good_config_is_accepted(make_config: Any) -> None:
    """The control for every refusal below."""
    from saltwall_engine.boot import config_problems

    assert config_problems(make_config(), "0.32.0") == []
    assert config_problems(make_config(), "0.33.4+cu130") == []


@pytest.mark.parametrize("names", BAD_CONFIGS)
def test_each_bad_setting_is_refused_by_name(make_config: Any, names: str) -> None:
    """One changed field gives one refusal, which names the flag and what to do."""
    from saltwall_engine.boot import config_problems

    config = make_config()
    BAD_CONFIGS[names](config)
    (problem,) = config_problems(config, "0.32.0")
    assert names in problem
    assert ": " in problem


@pytest.mark.parametrize("version", ["0.31.9", "0.34.0", "1.0.0", "dev", ""])
def test_an_untested_vllm_is_refused(make_config: Any, version: str) -> None:
    """Only the tested range starts, and an unreadable version is outside it."""
    from saltwall_engine.boot import config_problems

    (problem,) = config_problems(make_config(), version)
    assert ">=0.32,<0.34" in problem


GOOD_ENVIRONMENT = {"VLLM_PLUGINS": "saltwall", "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": "0"}


def test_a_good_environment_is_accepted() -> None:
    """The control for the next test."""
    from saltwall_engine.boot import environment_problems

    assert environment_problems(GOOD_ENVIRONMENT) == []
    assert environment_problems(GOOD_ENVIRONMENT | {"PYTHONHASHSEED": "random"}) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_PLUGINS", ""),
        ("VLLM_PLUGINS", "other"),
        ("PYTHONHASHSEED", "0"),
        ("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", "1"),
        ("VLLM_USE_RUST_FRONTEND", "1"),
        ("VLLM_SERVER_DEV_MODE", "1"),
        ("VLLM_DEBUG_LOG_API_SERVER_RESPONSE", "true"),
        ("VLLM_LOGGING_LEVEL", "debug"),
    ],
)
def test_each_bad_variable_is_refused_by_name(name: str, value: str) -> None:
    """One bad variable gives one refusal that names it."""
    from saltwall_engine.boot import environment_problems

    (problem,) = environment_problems(GOOD_ENVIRONMENT | {name: value})
    assert name in problem


def test_integer_event_hashes_are_vllms_default_and_refused() -> None:
    """Without the variable vLLM truncates, so its absence is refused too."""
    from saltwall_engine.boot import environment_problems

    (problem,) = environment_problems({"VLLM_PLUGINS": "saltwall"})
    assert "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES" in problem


@pytest.mark.parametrize(
    ("field", "value", "flag"),
    [
        ("enable_log_requests", True, "--enable-log-requests"),
        ("root_path", "/v1", "--root-path"),
        ("grpc", True, "--grpc"),
    ],
)
def test_each_bad_server_flag_is_refused_by_name(field: str, value: Any, flag: str) -> None:
    """Flags of the API server that bypass the gate or log prompts."""
    from saltwall_engine.boot import frontend_problems

    good = {"enable_log_requests": False, "root_path": None, "grpc": False}
    assert frontend_problems(SimpleNamespace(**good)) == []
    (problem,) = frontend_problems(SimpleNamespace(**good | {field: value}))
    assert flag in problem


def test_the_scheduler_will_not_start_with_a_hook_that_is_not_live(
    make_core: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM swallows a plugin's import error, so the scheduler looks for the hooks itself."""
    from vllm.v1.engine import core
    from vllm.v1.engine.core import EngineCore

    from saltwall_engine import engine_core
    from saltwall_engine.errors import BootRefused

    with monkeypatch.context() as patch:
        patch.setattr(core, "get_request_block_hasher", lambda *_: None)
        with pytest.raises(BootRefused, match="salted block hash is not live"):
            make_core()
    with monkeypatch.context() as patch:
        patch.setattr(EngineCore, "add_request", engine_core._stock_add)
        with pytest.raises(BootRefused, match="ticket check in EngineCore is not live"):
            make_core()
    make_core()


def test_the_scheduler_will_not_start_without_keys(
    make_core: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """No key file, or one that others can read, names the path and the remedy."""
    from saltwall_engine.errors import BootRefused

    path = tmp_path / "engine-demo.json"
    path.write_text("{}")
    path.chmod(0o644)
    monkeypatch.setenv("SALTWALL_ENGINE_KEYS", str(path))
    with pytest.raises(BootRefused, match="chmod 600"):
        make_core()
    monkeypatch.delenv("SALTWALL_ENGINE_KEYS")
    with pytest.raises(BootRefused, match="SALTWALL_ENGINE_KEYS is not set"):
        make_core()


def test_the_plugin_without_its_scheduler_builds_no_engine(make_config: Any) -> None:
    """While the plugin is loaded, vLLM cannot get any scheduler but ours."""
    from saltwall_engine.errors import BootRefused

    config = make_config().scheduler_config
    config.get_scheduler_cls()
    config.scheduler_cls = None
    with pytest.raises(BootRefused, match="without its scheduler"):
        config.get_scheduler_cls()


@pytest.mark.parametrize("plugins", [None, "saltwall"])
def test_the_installed_entry_point_refuses_a_vllm_that_did_not_ask_for_it(
    plugins: str | None, tmp_path: Any
) -> None:
    """vLLM's own loader, in a new process: without VLLM_PLUGINS it stops, with it it goes on."""
    environ = {k: v for k, v in os.environ.items() if k != "VLLM_PLUGINS"}
    if plugins is not None:
        environ["VLLM_PLUGINS"] = plugins
    code = "from vllm.plugins import load_general_plugins as load; load(); print('loaded')"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, cwd=tmp_path, capture_output=True, text=True
    )
    if plugins is None:
        assert done.returncode != 0
        assert "VLLM_PLUGINS does not name saltwall" in done.stderr
    else:
        assert "loaded" in done.stdout


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--prefix-caching-hash-algo", "sha256"], "--prefix-caching-hash-algo"),
        (["--enable-log-requests"], "--enable-log-requests"),
    ],
)
def test_a_real_vllm_server_does_not_boot(
    flags: list[str], named: str, model_dir: Any, engine_keys: Any, tmp_path: Any
) -> None:
    """vLLM's own API server with one wrong flag ends before it loads a model, and says why.

    The control is the engine of the end-to-end tests: the same command without the flag.
    """
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(model_dir), "--skip-tokenizer-init", "--max-model-len", "512"]
    command += ["--prefix-caching-hash-algo", "sha256_cbor"]
    command += ["--scheduler-cls", "saltwall_engine.scheduler.scheduler_class", *flags]
    done = subprocess.run(
        command, env=os.environ, cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert done.returncode != 0
    assert "Saltwall refuses to start this engine" in done.stderr + done.stdout
    assert named in (done.stderr + done.stdout).split("Saltwall refuses to start")[-1]
