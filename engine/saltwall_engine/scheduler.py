"""The scheduler class that vLLM is told to use (`--scheduler-cls`)."""

import logging
import os
from pathlib import Path
from typing import Any

import vllm
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from saltwall_engine import block_hash, boot, engine_core
from saltwall_engine.admission import Admission
from saltwall_engine.errors import BootRefused
from saltwall_engine.kv_cache_manager import TenantKVCacheManager, upgrade
from saltwall_tenants.wire import EngineKeys, KeyFileError
from saltwall_tenants.wire.attestation import VECTOR_DIGEST

KEYS_VARIABLE = "SALTWALL_ENGINE_KEYS"

_log = logging.getLogger("vllm.saltwall")


def read_keys() -> EngineKeys:
    """Reads this engine's key file, whose path is in the environment.

    Raises:
        BootRefused: there is none, or it cannot be used.
    """
    path = os.environ.get(KEYS_VARIABLE)
    if not path:
        raise BootRefused([f"{KEYS_VARIABLE} is not set: start with `saltwall engine`"])
    try:
        return EngineKeys.read(Path(path))
    except KeyFileError as error:
        raise BootRefused([str(error)]) from None


class _Guarded(Scheduler):
    """What Saltwall adds to either of vLLM's schedulers."""

    kv_cache_manager: TenantKVCacheManager

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        boot.refuse(
            boot.config_problems(self.vllm_config, vllm.__version__)
            + boot.environment_problems(os.environ)
            + block_hash.problems()
            + engine_core.problems()
        )
        self.admission = Admission(read_keys())
        upgrade(self.kv_cache_manager, self.admission.allows)
        self.vector_digest = block_hash.vector_digest()
        if self.vector_digest != VECTOR_DIGEST:
            _log.error("Saltwall: block hashes differ from the published test vectors; not ready")


class TenantScheduler(_Guarded):
    """vLLM's synchronous scheduler, guarded."""


class TenantAsyncScheduler(_Guarded, AsyncScheduler):
    """vLLM's asynchronous scheduler, guarded."""


def scheduler_class(vllm_config: Any, **kwargs: Any) -> Scheduler:
    """Builds the guarded scheduler that fits the config; EngineCore calls this like a class."""
    asynchronous = vllm_config.scheduler_config.async_scheduling
    cls = TenantAsyncScheduler if asynchronous else TenantScheduler
    return cls(vllm_config=vllm_config, **kwargs)
