"""The exact command and environment with which `saltwall engine` starts vLLM."""

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from saltwall_platform.settings import is_loopback
from saltwall_platform.stack import engine_flags, engine_keys
from saltwall_platform.stack.engine_flags import BYPASS, PROMPTS, Rule, mentions
from saltwall_platform.stack.errors import FlagError

MODULE: Final = "vllm.entrypoints.openai.api_server"
STEP_VARIABLE: Final = "SALTWALL_STEP_MS"
"""How long the engine lets a step take while several tenants have work (milliseconds)."""
MAX_STEP_MS: Final = 60_000
ZEROIZE_VARIABLE: Final = "SALTWALL_ZEROIZE"
"""Whether the engine overwrites purged KV blocks: 1 or 0."""
UNSET: Final = ("PYTHONHASHSEED",)  # it changes the first block's parent hash


def is_on(value: str | None) -> bool:
    """Whether a variable that is a switch is on."""
    return (value or "").lower() not in ("", "0", "false")


REFUSED_VARIABLES: Final[Mapping[str, Rule]] = {
    "VLLM_API_KEY": Rule("the gateway checks tenants' keys; the engine takes tickets instead"),
    "VLLM_USE_RUST_FRONTEND": Rule(BYPASS, is_on),
    "VLLM_SERVER_DEV_MODE": Rule("it serves routes that read and reset the cache", is_on),
    "VLLM_DEBUG_LOG_API_SERVER_RESPONSE": Rule(PROMPTS, is_on),
    "VLLM_LOGGING_LEVEL": Rule(f"at this level {PROMPTS}", mentions("debug")),
}


@dataclass(frozen=True)
class EngineCommand:
    """One vLLM server: `name` is the deployment that its tickets are for."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]

    def environ(self, base: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of the process, from that of this one."""
        return {k: v for k, v in base.items() if k not in UNSET} | dict(self.environment)

    def shell(self) -> str:
        """The command as a line for a shell; there is no secret in it."""
        unset = [word for name in UNSET for word in ("-u", name)]
        assigned = [f"{name}={value}" for name, value in self.environment.items()]
        return shlex.join(["env", *unset, *assigned, *self.argv])


def build(
    arguments: Sequence[str],
    *,
    name: str | None,
    keys: Path | None,
    keys_dir: Path,
    base: Mapping[str, str],
) -> EngineCommand:
    """Checks vLLM's arguments and adds what Saltwall owns.

    Args:
        arguments: vLLM's own flags, or a whole pasted `vllm serve MODEL --flags`.
        name: the deployment; None for the first `--served-model-name`, else the model.
        keys: the engine's key file; None for its place in `keys_dir`.
        base: the environment in which vLLM would run.

    Raises:
        FlagError: a flag or variable is owned or refused, or no model is named.
    """
    given = without_program(arguments)
    engine_flags.check(given)
    check_variables(base)
    name = name or served_name(given)
    owned = listening(given)
    for flag, value in engine_flags.OWNED.items():
        owned += [flag] if value is None else [flag, value]
    path = keys or engine_keys.location(keys_dir, name)
    return EngineCommand(
        name=name,
        argv=(sys.executable, "-m", MODULE, *given, *owned),
        environment={
            "SALTWALL_ENGINE_KEYS": str(path.absolute()),
            "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": "0",  # never a truncated digest
            "VLLM_NO_USAGE_STATS": base.get("VLLM_NO_USAGE_STATS", "1"),
            "VLLM_PLUGINS": "saltwall",
            **{name: base[name] for name in (STEP_VARIABLE, ZEROIZE_VARIABLE) if name in base},
        },
    )


def without_program(arguments: Sequence[str]) -> list[str]:
    """Drops the program of a pasted command, and turns a positional model into `--model`.

    Only `vllm serve` itself understands a positional model.
    """
    given = list(arguments)
    if MODULE in given:
        given = given[given.index(MODULE) + 1 :]
    elif given and os.path.basename(given[0]) == "vllm":
        given = given[1:]
        if given and given[0] != "serve" and not given[0].startswith("-"):
            raise FlagError(f"`vllm {given[0]}` is no server: only `vllm serve` is")
    if given and given[0] == "serve":
        given = given[1:]
    if given and re.match(r"[A-Za-z_]\w*=", given[0]):
        raise FlagError(f"put {given[0].partition('=')[0]}=... before `saltwall engine`")
    if given and given[0] in ("docker", "podman", "python", "python3", "torchrun"):
        raise FlagError(f"install Saltwall where {given[0]} runs vLLM, and run it there")
    if given and not given[0].startswith("-"):
        given = ["--model", *given]
    return given


def listening(arguments: Sequence[str]) -> list[str]:
    """The loopback address unless another is given.

    Raises:
        FlagError: another is given without TLS: tickets and prompts would go in clear.
    """
    given = {f.name: f.value for f in engine_flags.flags(engine_flags.expand_config(arguments))}
    if "--uds" in given:
        return []
    host = given.get("--host")
    if host is None:
        return ["--host", "127.0.0.1"]
    if not is_loopback(host) and not {"--ssl-keyfile", "--ssl-certfile"} <= given.keys():
        raise FlagError(
            "--host beyond loopback needs --ssl-keyfile and --ssl-certfile: the gateway's tickets "
            "and tenants' prompts go over that connection"
        )
    return []


def served_name(arguments: Sequence[str]) -> str:
    """The first `--served-model-name`, else the model, of the last time each is given."""
    found: dict[str, str] = {}
    for flag in engine_flags.flags(engine_flags.expand_config(arguments)):
        is_name = flag.name.startswith("--ser") and "--served-model-name".startswith(flag.name)
        key = "--served-model-name" if is_name else flag.name
        if flag.value is not None:
            found[key] = flag.value
    for key in ("--served-model-name", "--model"):
        if found.get(key):
            return found[key]
    raise FlagError("name a model: saltwall engine -- --model PATH_OR_HF_ID")


def check_variables(base: Mapping[str, str]) -> None:
    """Raises:
    FlagError: the environment opens a way around the ticket check, or the engine would refuse it.
    """
    for variable, rule in REFUSED_VARIABLES.items():
        if variable in base and rule.applies(base[variable]):
            raise FlagError(f"unset {variable}: {rule.reason}")
    text = base.get(STEP_VARIABLE, "0")
    try:
        fits = 0 <= float(text) <= MAX_STEP_MS
    except ValueError:
        fits = False
    if not fits:
        raise FlagError(
            f"{STEP_VARIABLE} is {text!r}: give milliseconds from 0 (no bound) to {MAX_STEP_MS}"
        )
    if base.get(ZEROIZE_VARIABLE, "1") not in ("0", "1"):
        raise FlagError(
            f"{ZEROIZE_VARIABLE} is {base[ZEROIZE_VARIABLE]!r}: give 1 to overwrite purged KV "
            "blocks, or 0"
        )
