"""Stock vLLM beside Saltwall, to compare with: the same model and flags, without the plugin."""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from saltwall_platform.stack import (
    demo_model,
    engine_command,
    engine_log,
    install,
    plan,
    preflight,
    running,
    vllm_install,
)
from saltwall_platform.stack.errors import StackError
from saltwall_platform.stack.service import Service

POOL: Final = ("--block-size", "32", "--num-gpu-blocks-override", "320")
"""So few blocks that an attack on the pool shows within minutes."""
LENGTH: Final = ("--max-model-len", "4096")
NEEDED_MEMORY_GB: Final = 3.0
POLL_S: Final = 0.5
GRACE_S: Final = 10.0


@dataclass(frozen=True)
class Stock:
    """A running stock vLLM: its origin, the process of its API server, its log."""

    url: str
    pid: int | None
    log: Path


def check() -> None:
    """Raises:
    StackError: it cannot run here.
    """
    if vllm_install.version() is None:
        raise StackError(
            "vLLM is not installed here, so stock vLLM cannot be started: run `make up` once, or "
            "name a server that already runs by its URL"
        )
    memory = preflight.available_memory_gb()
    if memory is not None and memory < NEEDED_MEMORY_GB:
        raise StackError(
            f"{memory:.1f} GB of memory are free, stock vLLM needs {NEEDED_MEMORY_GB:.0f} GB"
        )


@contextmanager
def serving(home: Path, report: Callable[[str], None]) -> Iterator[Stock]:
    """Runs it until the end of the block.

    Args:
        home: Saltwall's data directory, where the demo model is, or will be. What `saltwall up`
            serves from there is served by this one too.

    Raises:
        StackError: it cannot run here.
    """
    check()
    up = running.find(home)
    model = up.model if up is not None else str(demo_model.prepare(home, report))
    port = _free_port()
    service = Service("stock", _argv(model, port), _environ(os.environ), home, GRACE_S)
    service.rotate_log()
    report("starting stock vLLM")
    service.start()
    try:
        url = f"http://127.0.0.1:{port}"
        _await(service, url)
        yield Stock(url, service.pid, service.log)
    finally:
        service.stop()
        while service.running:
            time.sleep(POLL_S)  # a service is asked whether it has ended


def _argv(model: str, port: int) -> list[str]:
    argv = [sys.executable, "-m", engine_command.MODULE, "--model", model]
    argv += ["--served-model-name", plan.DEMO_NAME, "--host", "127.0.0.1", "--port", str(port)]
    argv += ["--enable-prompt-tokens-details", "--enforce-eager", *LENGTH, *POOL]
    if install.has_nvidia_gpu(None):
        return [*argv, "--kv-cache-memory-bytes", str(1 << 30)]
    return [*argv, "--dtype", "bfloat16"]


def _environ(base: Mapping[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in base.items() if not k.startswith(("SALTWALL_", "VLLM_"))}
    return kept | {
        "VLLM_PLUGINS": "",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": base.get("HF_HUB_OFFLINE", "1"),
    }


def _await(service: Service, url: str) -> None:
    with httpx.Client(base_url=url, timeout=2, trust_env=False) as client:
        while True:
            code = service.ended()
            if code is not None:
                why = "\n  ".join(engine_log.cause(service.log_text()))
                raise StackError(f"stock vLLM did not start (code {code}):\n  {why}")
            try:
                if client.get("/health").status_code == 200:
                    return
            except httpx.HTTPError:
                pass  # not yet
            time.sleep(POLL_S)  # between questions: vLLM does not say when it is ready


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
