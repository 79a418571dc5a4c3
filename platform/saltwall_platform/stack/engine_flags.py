"""Which vLLM flags `saltwall engine` sets itself, and which it refuses, with the reason.

The engine checks its whole configuration again when it boots; this says so before a minute of
loading, and in terms of what was typed.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from saltwall_platform.stack.errors import FlagError

OWNED: Final[Mapping[str, str | None]] = {
    "--scheduler-cls": "saltwall_engine.scheduler.scheduler_class",
    "--prefix-caching-hash-algo": "sha256_cbor",
    "--enable-prefix-caching": None,
    "--enable-prompt-tokens-details": None,
}
"""Flag and value; None for a switch."""

BYPASS: Final = "it serves entry points that the ticket check does not see"
CONNECTOR: Final = "KV connectors and offload tiers check no owner and cannot purge a tenant"
PROMPTS: Final = "it writes tenants' prompts or answers to the log"


@dataclass(frozen=True)
class Rule:
    """Why a flag is refused, and for which of its values (as text; None for a switch)."""

    reason: str
    applies: Callable[[str | None], bool] = lambda value: True


def above(limit: float) -> Callable[[str | None], bool]:
    """Whether a value is a number above `limit`; vLLM itself complains of what is no number."""

    def applies(value: str | None) -> bool:
        try:
            return float(value or "nan") > limit
        except ValueError:
            return False

    return applies


def mentions(*words: str) -> Callable[[str | None], bool]:
    """Whether a value contains one of the words, in whatever syntax."""
    return lambda value: any(word in (value or "").lower() for word in words)


REFUSED: Final[Mapping[str, Rule]] = {
    "--api-key": Rule(
        "tenants' keys are checked by the gateway and the engine's secrets come from a private "
        "file; a key on the command line can be read by every user of this machine"
    ),
    "--hf-token": Rule(
        "a token on the command line can be read by every user of this machine: "
        "set HF_TOKEN in the environment instead"
    ),
    "--middleware": Rule(
        "it could change a request after its seal was checked; the plugin adds Saltwall's own"
    ),
    "--trust-remote-code": Rule("a model's own code would run with every tenant's data"),
    "--root-path": Rule("it moves the routes away from the engine's allow-list"),
    "--enable-log-requests": Rule(PROMPTS),
    "--enable-log-outputs": Rule(PROMPTS),
    "--log-level": Rule(f"at this level {PROMPTS}", mentions("debug")),
    "--kv-transfer-config": Rule(CONNECTOR),
    "--kv-offloading-size": Rule(CONNECTOR),
    "--ec-transfer-config": Rule("it shares encoder outputs by content, across tenants"),
    "--kv-events-config": Rule("KV events publish token ids in clear"),
    "--api-server-count": Rule("a policy would reach only one of several API servers", above(1)),
    "--data-parallel-size": Rule(
        "run one engine for each replica; the gateway balances between them", above(1)
    ),
    "--watermark": Rule("it keeps blocks free for nobody in particular", above(0)),
    "--speculative-config": Rule(
        "suffix decoding keeps one tree for all tenants", mentions("suffix", "custom_class")
    ),
    "--spec-method": Rule("suffix decoding keeps one tree for all tenants", mentions("suffix")),
    "--enable-return-routed-experts": Rule("it keeps a cache of its own across tenants"),
    "--grpc": Rule(BYPASS),
    "--grpc-port": Rule(BYPASS),
    "--headless": Rule("an engine without its API server has nothing that checks tickets"),
    "--tokens-only": Rule(BYPASS),
    "--enable-scale-out": Rule(BYPASS),
    "--data-parallel-multi-port-external-lb": Rule(BYPASS),
}

SHORT: Final = {
    "-asc": "--api-server-count",
    "-dp": "--data-parallel-size",
    "-dpm": "--data-parallel-multi-port-external-lb",
    "-sc": "--speculative-config",
}


@dataclass(frozen=True)
class Flag:
    """One flag as vLLM will read it: its name with dashes, its value if it has one."""

    name: str
    value: str | None
    typed: str
    switched_off: bool = False


def check(arguments: Sequence[str]) -> None:
    """Refuses what must not reach vLLM.

    Args:
        arguments: vLLM's command line after the program, config file included by `--config`.

    Raises:
        FlagError: a flag is owned or refused; the message never repeats its value.
    """
    for flag in flags(expand_config(arguments)):
        for name in meant(flag.name):
            short = "" if flag.name == name else f" (short for {name})"
            if name in OWNED:
                raise FlagError(
                    f"{flag.typed}{short} is set by Saltwall: remove it. "
                    f"It is always {name}{'' if OWNED[name] is None else f' {OWNED[name]}'}"
                )
            rule = REFUSED[name]
            if not flag.switched_off and rule.applies(flag.value):
                raise FlagError(f"{flag.typed}{short} is refused: {rule.reason}. Remove it")


def flags(arguments: Sequence[str]) -> Iterator[Flag]:
    """Reads a command line as vLLM's FlexibleArgumentParser does (vllm/utils/argparse_utils.py).

    Underscores and dashes are alike before the first dot, `--json.key value` sets a key of a JSON
    flag, and a token that begins with dashes is a flag even where a value was expected.
    """
    for index, word in enumerate(arguments):
        if word == "--":
            raise FlagError("a second `--` would hide flags from vLLM's parser: remove it")
        if not word.startswith("-") or word == "-":
            continue
        typed, equals, attached = word.partition("=")
        name = typed.split(".")[0]
        name = "--" + name[2:].replace("_", "-") if name.startswith("--") else SHORT.get(name, name)
        following = arguments[index + 1] if index + 1 < len(arguments) else None
        value = attached if equals else following
        off = name.startswith("--no-")
        yield Flag("--" + name[5:] if off else name, value, typed, off)


def meant(name: str) -> list[str]:
    """The owned or refused flags that `name` is, or that argparse could complete it to."""
    controlled = [*OWNED, *REFUSED]
    if name in controlled:
        return [name]
    if not name.startswith("--"):
        return [SHORT[short] for short in SHORT if len(name) > 1 and short.startswith(name)]
    return [flag for flag in controlled if flag.startswith(name)]


def expand_config(arguments: Sequence[str]) -> list[str]:
    """Puts the content of `--config FILE` in front, as vLLM does."""
    if any(token.startswith("--config=") for token in arguments):
        raise FlagError("vLLM reads a config file only when written `--config FILE`, without `=`")
    if "--config" not in arguments:
        return list(arguments)
    at = list(arguments).index("--config")
    if at + 1 == len(arguments) or "--config" in arguments[at + 1 :]:
        raise FlagError("`--config` takes one file, once")
    return [*config_arguments(Path(arguments[at + 1])), *arguments[:at], *arguments[at + 2 :]]


def config_arguments(path: Path) -> list[str]:
    """The command line that a vLLM config file stands for."""
    import yaml  # type: ignore[import-untyped]  # comes with vLLM, which alone reads such files

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise FlagError(f"--config {path} cannot be read: {type(error).__name__}") from None
    if not isinstance(document, dict):
        raise FlagError(f"--config {path} must hold `flag: value` lines")
    tokens: list[str] = []
    for key, value in document.items():
        match value:
            case bool():
                tokens.append(f"--{key}" if value else f"--no-{key}")
            case list():
                tokens += [f"--{key}", *map(str, value)]
            case dict():
                tokens += [f"--{key}", json.dumps(value)]
            case _:
                tokens += [f"--{key}", str(value)]
    return tokens
