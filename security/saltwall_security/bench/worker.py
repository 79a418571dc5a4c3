"""The process that a scheduler is examined in: tasks come as lines of JSON, and answers go back so.

It is one of its own because vLLM reads its environment when it is imported, plugins change
vLLM for good, and a scheduler that fails or hangs must not take the audit with it.
"""

import json
import logging
import os
import random
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from saltwall_security.bench.attacks.catalogue import CATALOGUE
from saltwall_security.bench.bench import Bench
from saltwall_security.bench.clock import Clock
from saltwall_security.bench.dialect import Dialect
from saltwall_security.bench.engine import NotServed
from saltwall_security.bench.hashing import collide, compare_hashes, time_algorithms
from saltwall_security.bench.saltwall import Saltwall
from saltwall_security.bench.stock import Stock

STOCK = "vllm.v1.core.sched.scheduler:Scheduler"
STOCK_ASYNC = "vllm.v1.core.sched.async_scheduler:AsyncScheduler"
_MODEL = {
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


def dialect_of(scheduler: str, seed: str) -> Dialect:
    """How a scheduler of this name is spoken to: vLLM's own as stock, others as Saltwall's."""
    stock = scheduler.partition(".")[0] == "vllm" or find_spec("saltwall_engine") is None
    return Stock(seed) if stock else Saltwall(seed)


def _factory(scheduler: str) -> Callable[..., Any]:
    """The class or function of this name; stock's own comes in two."""
    if scheduler == STOCK:
        return lambda **parts: _load(
            STOCK_ASYNC if parts["vllm_config"].scheduler_config.async_scheduling else STOCK
        )(**parts)
    found: Callable[..., Any] = _load(scheduler)
    return found


def _load(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def make_bench(scheduler: str, seed: str, directory: Path) -> Bench:
    """A bench for the scheduler; changes this process for good.

    Args:
        scheduler: "module:name" of a class, or of a function that builds one.
        seed: of tenants and salts.
        directory: for files, as long as the process lives.
    """
    (directory / "config.json").write_text(json.dumps(_MODEL))
    dialect = dialect_of(scheduler, seed)
    dialect.prepare(directory)
    import_vllm()
    clock = Clock()
    clock.install()
    dialect.install()
    return Bench(_factory(scheduler), dialect, str(directory), clock)


def import_vllm() -> None:
    """Imports what takes long, and nothing that depends on the scheduler."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("VLLM_CONFIGURE_LOGGING", "0")
    logging.disable(logging.CRITICAL)
    import_module("vllm.v1.engine.core")


def attack(bench: Bench, name: str, asynchronous: bool, seed: str) -> Mapping[str, Any]:
    """Runs one attack of the catalogue."""
    dice = random.Random(seed)  # noqa: S311  # reproducible, and guards nothing
    return asdict(CATALOGUE[name].attack(bench, dice, asynchronous))


TASKS: Mapping[str, Callable[..., Any]] = {
    "attack": attack,
    "compare_hashes": compare_hashes,
    "collide": collide,
    "time_algorithms": time_algorithms,
}


def serve(bench: Bench, stream: TextIO) -> None:
    """Does task after task until there are no more."""
    for line in stream:
        task = json.loads(line)
        try:
            _tell(stream, answer=TASKS[task.pop("task")](bench, **task))
        except NotServed as error:
            _tell(stream, error=str(error))
        except Exception as error:  # of a scheduler that may be anything: its text may hold secrets
            _tell(stream, error=f"the scheduler failed ({type(error).__name__})")


def _tell(stream: TextIO, **said: Any) -> None:
    stream.write(json.dumps(said) + "\n")
    stream.flush()


def examine(scheduler: str, seed: str, stream: TextIO) -> None:
    """Builds the scheduler, says so, and does what it is then asked to do with it."""
    with tempfile.TemporaryDirectory(prefix="saltwall-bench-") as directory:
        try:
            bench = make_bench(scheduler, seed, Path(directory))
            bench.engine()
        except Exception as error:  # told to whoever wants it examined
            _tell(stream, error=f"{type(error).__name__}: {error}")
            return
        import vllm

        _tell(stream, answer={"vllm": vllm.__version__, "pid": os.getpid()})
        serve(bench, stream)


def main(seed: str, *tasks: str) -> None:
    """Examines each scheduler in a process of its own, forked once vLLM has been imported.

    Args:
        seed: of tenants and salts.
        tasks: the descriptor of a socket, "=", and a scheduler's "module:name".
    """
    with suppress(ImportError):  # each says so itself
        import_vllm()
    for task in tasks:
        descriptor, _, scheduler = task.partition("=")
        if os.fork() == 0:
            with socket.socket(fileno=int(descriptor)) as channel:
                examine(scheduler, seed, channel.makefile("rw"))
            return
        os.close(int(descriptor))
    for _ in tasks:
        os.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
