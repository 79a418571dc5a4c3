"""What `saltwall up` runs: the model, its name, and vLLM's flags for this machine."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from saltwall_platform.settings import Engine, Settings
from saltwall_platform.stack import engine_command, engine_flags
from saltwall_platform.stack.engine_command import EngineCommand
from saltwall_platform.stack.errors import FlagError

DEMO_NAME: Final = "demo"
DEMO_MAX_MODEL_LEN: Final = 8192
PROBED: Final = "/health,/saltwall/v1/policy,/saltwall/v1/attestation"
"""What the gateway asks of an engine all the time; the engine's log leaves it out."""
OWN_OPTIONS: Final = {
    "--model": "--model",
    "--port": "--engine-port",
    "--host": "nothing: it listens on 127.0.0.1",
    "--uds": "nothing: it listens on 127.0.0.1",
}
"""Flags of vLLM that must be given as options of `saltwall up`, which has to know them."""


@dataclass(frozen=True)
class UpOptions:
    """The choices of whoever types `saltwall up`.

    Args:
        model: a directory, a Hugging Face id, or None for the demo model.
        kv_gib: memory for the KV cache (GiB).
        flags: further flags for vLLM; they win over those chosen here.
    """

    model: str | None = None
    revision: str | None = None
    engine_port: int = 8100
    max_model_len: int | None = None
    kv_gib: int = 1
    flags: Sequence[str] = ()


def deployment(options: UpOptions) -> str:
    """The name that tenants ask for and tickets are for."""
    if options.model is None:
        return DEMO_NAME
    return Path(options.model).name or options.model


def engine(
    options: UpOptions, settings: Settings, model: str, *, gpu: bool, base: Mapping[str, str]
) -> EngineCommand:
    """The engine's command.

    Args:
        model: the directory or id to load.
        gpu: whether vLLM runs on a GPU here, where its own defaults are good.
        base: the environment of this process.
    """
    for flag in engine_flags.flags(engine_flags.expand_config(options.flags)):
        if flag.name in OWN_OPTIONS:
            raise FlagError(f"instead of {flag.typed} after `--`, use {OWN_OPTIONS[flag.name]}")
    arguments = ["--model", model, "--host", "127.0.0.1", "--port", str(options.engine_port)]
    arguments += ["--served-model-name", deployment(options)]
    arguments += ["--disable-access-log-for-endpoints", PROBED]
    if options.revision is not None:
        arguments += ["--revision", options.revision]
    length = options.max_model_len
    if length is None and options.model is None:
        length = DEMO_MAX_MODEL_LEN
    if length is not None:
        arguments += ["--max-model-len", str(length)]
    environment: dict[str, str] = {}
    if gpu:
        arguments += ["--kv-cache-memory-bytes", str(options.kv_gib << 30)]
    else:
        # Small blocks show cache hits on short prompts; eager mode needs no C++ compiler and
        # starts in a quarter of the time.
        arguments += ["--dtype", "bfloat16", "--block-size", "32", "--enforce-eager"]
        environment["VLLM_CPU_KVCACHE_SPACE"] = str(options.kv_gib)
    if os.path.isdir(model):
        environment["HF_HUB_OFFLINE"] = base.get("HF_HUB_OFFLINE", "1")  # nothing to look up
    command = engine_command.build(
        [*arguments, *options.flags],
        name=None,
        keys=None,
        keys_dir=settings.keys_dir,
        base=base,
    )
    return EngineCommand(command.name, command.argv, {**environment, **command.environment})


def gateway_environ(
    settings: Settings, name: str, engine_port: int, base: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a gateway with `settings`, in front of that one engine."""
    engines = Engine(name=name, url=f"http://127.0.0.1:{engine_port}").model_dump_json()
    return {
        **base,
        "SALTWALL_HOME": str(settings.home),
        "SALTWALL_KEYS_DIR": str(settings.keys_dir),
        "SALTWALL_DATABASE_URL": settings.database_url,
        "SALTWALL_PORT": str(settings.port),
        "SALTWALL_ADMIN_PORT": str(settings.admin_port),
        "SALTWALL_ENGINES": f"[{engines}]",
    }
