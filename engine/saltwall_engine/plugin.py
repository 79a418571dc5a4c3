"""The entry point `vllm.general_plugins`: vLLM calls `register` in each of its processes."""

import os
import sys
from functools import wraps
from typing import Any

import vllm
from vllm.config import SchedulerConfig
from vllm.engine.arg_utils import EngineArgs

from saltwall_engine import block_hash, boot, engine_core, erasure
from saltwall_tenants.wire.attestation import supported_vllm, vllm_range

GRPC_SERVER = "vllm.entrypoints.launchers.grpc_server"

_stock_scheduler_cls = SchedulerConfig.get_scheduler_cls
_stock_create_config = EngineArgs.create_engine_config


@wraps(_stock_scheduler_cls)
def get_scheduler_cls(self: Any) -> Any:
    """Only Saltwall's scheduler is ever built while the plugin is loaded."""
    return engine_core.require_our_scheduler(_stock_scheduler_cls(self))


@wraps(_stock_create_config)
def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Refuses a bad config in the API process, before any model is loaded.

    vLLM's own choice of a grammar compiler, `auto`, depends on who asks first; it becomes ours.
    """
    config = _stock_create_config(self, *args, **kwargs)
    if config.structured_outputs_config.backend == "auto":
        config.structured_outputs_config.backend = boot.GRAMMAR_BACKEND
    problems = boot.config_problems(config, vllm.__version__) + erasure.problems(config)
    if getattr(self, "enable_log_requests", False):
        problems.append("--enable-log-requests writes prompts to the log: remove it")
    boot.refuse(problems)
    return config


def register() -> None:
    """Installs every hook.

    Raises:
        BootRefused: this process must not serve.
    """
    problems = boot.environment_problems(os.environ)
    if not supported_vllm(vllm.__version__):
        problems.append(
            f"vLLM {vllm.__version__} is outside the tested range: install vllm{vllm_range()}"
        )
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if GRPC_SERVER in sys.modules or (main is not None and "grpc_server" in main.name):
        problems.append("the gRPC server bypasses the ticket check: serve HTTP")
    boot.refuse(problems)
    block_hash.install()
    engine_core.install()
    SchedulerConfig.get_scheduler_cls = get_scheduler_cls
    EngineArgs.create_engine_config = create_engine_config
