"""What the engine refuses to start with: one function of the vLLM config and the environment.

Each refusal closes a way around the salt, the ticket or the policy, and says what to change.
"""

from collections.abc import Mapping
from typing import Any

from saltwall_engine.errors import BootRefused
from saltwall_tenants.wire.attestation import ALGORITHM, supported_vllm, vllm_range

PLUGIN = "saltwall"
SCHEDULER = "saltwall_engine.scheduler.scheduler_class"
GRAMMAR_BACKEND = "xgrammar"


def refuse(problems: list[str]) -> None:
    """Raises:
    BootRefused: there is a problem.
    """
    if problems:
        raise BootRefused(problems)


def environment_problems(environ: Mapping[str, str]) -> list[str]:
    """What is wrong with a vLLM process's environment variables."""
    found = []
    if PLUGIN not in environ.get("VLLM_PLUGINS", "").split(","):
        found.append(
            "VLLM_PLUGINS does not name saltwall, so its HTTP endpoint is not loaded: start with "
            "`saltwall engine -- ...` (or set VLLM_PLUGINS= to run stock vLLM in this environment)"
        )
    if environ.get("PYTHONHASHSEED", "random") != "random":
        found.append("PYTHONHASHSEED changes the first block's parent hash: unset it")
    if environ.get("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", "1") != "0":
        found.append(
            "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES truncates block hashes to 64 bits: set it to 0"
        )
    if environ.get("VLLM_USE_RUST_FRONTEND", "0") not in ("", "0"):
        found.append("VLLM_USE_RUST_FRONTEND bypasses the ticket check: unset it")
    if environ.get("VLLM_SERVER_DEV_MODE", "0") not in ("", "0"):
        found.append("VLLM_SERVER_DEV_MODE serves routes that read and reset the cache: unset it")
    if environ.get("VLLM_DEBUG_LOG_API_SERVER_RESPONSE", "").lower() == "true":
        found.append("VLLM_DEBUG_LOG_API_SERVER_RESPONSE logs what tenants are answered: unset it")
    if environ.get("VLLM_LOGGING_LEVEL", "").upper() == "DEBUG":
        found.append("VLLM_LOGGING_LEVEL=DEBUG can log prompts: use INFO")
    return found


def config_problems(config: Any, vllm_version: str) -> list[str]:
    """What is wrong with a `vllm.config.VllmConfig`; needs no model and no device."""
    cache, scheduler, model = config.cache_config, config.scheduler_config, config.model_config
    parallel, speculative = config.parallel_config, config.speculative_config
    checks = [
        (
            not supported_vllm(vllm_version),
            f"vLLM {vllm_version} is outside the tested range: install vllm{vllm_range()}",
        ),
        (
            cache.prefix_caching_hash_algo != ALGORITHM,
            f"--prefix-caching-hash-algo is {cache.prefix_caching_hash_algo}: use {ALGORITHM}",
        ),
        (
            not cache.enable_prefix_caching,
            "prefix caching is off (--no-enable-prefix-caching, or a model that cannot): enable "
            "it, or choose a model that supports it",
        ),
        (
            not _is_ours(scheduler.scheduler_cls),
            f"--scheduler-cls is not {SCHEDULER}: start with `saltwall engine`",
        ),
        (
            scheduler.watermark > 0,
            "--watermark keeps blocks free for nobody in particular: remove it",
        ),
        (
            scheduler.policy != "fcfs",
            f"--scheduling-policy is {scheduler.policy}: tenants are served by weight, and each "
            "tenant's requests in order: remove it",
        ),
        (
            config.kv_events_config is not None and config.kv_events_config.enable_kv_cache_events,
            "--kv-events-config publishes token ids in clear: remove it",
        ),
        (
            config.kv_transfer_config is not None,
            "--kv-transfer-config: KV connectors check no owner and know no purge: remove it",
        ),
        (
            bool(cache.kv_offloading_size),
            "--kv-offloading-size: KV offload tiers check no owner and know no purge: remove it",
        ),
        (
            config.ec_transfer_config is not None,
            "--ec-transfer-config shares encoder outputs by content, across tenants: remove it",
        ),
        (
            model.is_multimodal_model or model.is_encoder_decoder,
            f"{model.model!r} has an encoder cache or multimodal processor cache, which share by "
            "content across tenants: serve a text-only decoder model",
        ),
        (
            speculative is not None and speculative.method in ("suffix", "custom_class"),
            "--speculative-config: suffix decoding keeps one tree for all tenants, and a custom "
            "class is unknown: choose another method",
        ),
        (
            getattr(config, "num_hash_lookahead_tokens", 0) > 0,
            "--speculative-config: this method hashes a block with the tokens after it, which "
            "is another block hash: choose another method",
        ),
        (
            config.attention_config.hisparse_config is not None,
            "HiSparse allocates KV from a private pool: remove it from --attention-config",
        ),
        (
            config.structured_outputs_config.backend != GRAMMAR_BACKEND,
            f"--structured-outputs-config: backend is not {GRAMMAR_BACKEND}, whose limits the "
            "gateway keeps; with others one schema can end the engine for all tenants: remove it",
        ),
        (
            config.aux_output_config.enabled,
            "--enable-return-routed-experts keeps a cache of its own: remove it",
        ),
        (
            parallel._api_process_count > 1,
            "--api-server-count above 1: a policy push would reach one of them: use 1",
        ),
        (
            parallel.data_parallel_size > 1,
            "--data-parallel-size above 1: run one engine per replica behind the gateway",
        ),
    ]
    return [message for wrong, message in checks if wrong]


def frontend_problems(args: Any) -> list[str]:
    """What is wrong with the API server's parsed arguments."""
    found = []
    if args.enable_log_requests:
        found.append("--enable-log-requests writes prompts to the log: remove it")
    if args.root_path:
        found.append("--root-path moves routes away from the allow-list: remove it")
    if getattr(args, "grpc", False):
        found.append("--grpc bypasses the ticket check: remove it")
    return found


def _is_ours(scheduler_cls: Any) -> bool:
    if isinstance(scheduler_cls, str):
        return scheduler_cls == SCHEDULER
    return getattr(scheduler_cls, "__module__", "").partition(".")[0] == "saltwall_engine"
