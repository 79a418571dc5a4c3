"""What is attacked: the product with a reserve for the victim, or stock vLLM, on the same pool."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import httpx
from flood.attacks import CEILING
from running_stack import START_S, Stack, eventually, free_ports, running_stack

from saltwall_platform.stack import demo_model

POOL = ("--block-size", "32", "--num-gpu-blocks-override", "320")
POOL_TOKENS = 320 * 32
STACK_POOL = POOL[2:]
"""`saltwall up` itself chooses the block size, the same."""
RESERVE = "25%"
"""The victim's: its prefix, a question and some space to move (80 of 320 blocks)."""
STEP_VARIABLE = "SALTWALL_STEP_MS"
VICTIM = "flood-victim"
ATTACKER = "flood-attacker-"
SETTLE_S = 60.0

_COMPUTED = re.compile(r"^vllm:(?:prompt|generation)_tokens_total\{.*\} (\S+)$", re.MULTILINE)
_CACHED = re.compile(r"^vllm:prompt_tokens_cached_total\{.*\} (\S+)$", re.MULTILINE)
_GAUGES = re.compile(r"^vllm:num_requests_(?:running|waiting)\{.*\} (\S+)$", re.MULTILINE)


@dataclass
class Target:
    """One server under attack. `stack` is the product around it, if it is one of ours."""

    name: str
    base_url: str
    victim_key: str = field(repr=False)
    attacker_keys: Sequence[str] = field(repr=False)
    engine: httpx.Client = field(repr=False)
    stack: Stack | None = field(default=None, repr=False)
    attackers: Sequence[str] = ()
    """The attackers' tenants, where there are tenants."""

    def tokens(self) -> float:
        """Tokens that the engine has computed so far, prompts' and answers'."""
        text = self._metrics()
        return sum(map(float, _COMPUTED.findall(text))) - sum(map(float, _CACHED.findall(text)))

    def settle(self) -> None:
        """Waits until nothing runs, waits or is pinned.

        Raises:
            AssertionError: something remains, a minute after everybody has hung up.
        """
        eventually(self._is_idle, SETTLE_S)

    def pinned(self) -> dict[str, int]:
        """Blocks pinned for each tenant; nothing on stock vLLM, which does not know."""
        if self.stack is None:
            return {}
        return {hexed: row["pinned"] for hexed, row in self.stack.usage()["tenants"].items()}

    def alarms(self) -> dict[str, int]:
        """What the engine itself says went wrong."""
        return dict(self.stack.usage()["alarms"]) if self.stack else {}

    def _is_idle(self) -> bool:
        if self.stack is not None:
            return self.stack.busy() == 0 and not any(self.pinned().values())
        # vLLM's gauges are those of its last step: make it take one.
        body = {"model": "demo", "prompt": "salt", "max_tokens": 1}
        self.engine.post("/v1/completions", json=body).raise_for_status()
        return sum(map(float, _GAUGES.findall(self._metrics()))) == 0

    def _metrics(self) -> str:
        return self.engine.get("/metrics").raise_for_status().text


@contextmanager
def stock(home: Path) -> Iterator[Target]:
    """vLLM alone, as `saltwall up` starts it but without the plugin.

    Args:
        home: where the demo model is, or will be; its log goes there too.
    """
    model = demo_model.prepare(home, lambda line: print(line, file=sys.stderr))
    (port,) = free_ports(1)
    argv = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    argv += ["--served-model-name", "demo", "--host", "127.0.0.1", "--port", str(port)]
    argv += ["--max-model-len", "4096", "--dtype", "bfloat16", "--enforce-eager", *POOL]
    argv += ["--enable-prompt-tokens-details"]
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("SALTWALL_", "VLLM_"))}
    environ |= {"VLLM_PLUGINS": "", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    environ |= {"VLLM_NO_USAGE_STATS": "1"}
    path = home / "stock.log"
    with path.open("w") as log:
        process = subprocess.Popen(argv, env=environ, stdout=log, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(base_url=url, timeout=120, trust_env=False) as engine:

            def serves() -> bool:
                if process.poll() is not None:
                    raise RuntimeError(f"stock vLLM ended:\n{path.read_text()[-4000:]}")
                try:
                    return engine.get("/health").status_code == 200
                except httpx.HTTPError:
                    return False

            eventually(serves, START_S)
            yield Target("stock", f"{url}/v1", "victim", ["attacker"], engine)
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        finally:
            process.kill()


@contextmanager
def saltwall(home: Path, attackers: int, environment: Mapping[str, str]) -> Iterator[Target]:
    """The whole product, on the same pool.

    Args:
        home: its data directory.
        attackers: how many tenants attack.
        environment: settings of its processes, such as `SALTWALL_STEP_MS`.
    """
    with (
        running_stack(home, *STACK_POOL, **environment) as stack,
        on_stack(stack, attackers) as target,
    ):
        yield target


@contextmanager
def on_stack(stack: Stack, attackers: int) -> Iterator[Target]:
    """A victim with a reserve and so many attacking tenants on a running stack, for a while."""
    tenants = [VICTIM, *(f"{ATTACKER}{number + 1}" for number in range(attackers))]
    listed = json.loads(stack.saltwall("tenant", "list", "--json").stdout)
    _delete(stack, [row["name"] for row in listed if row["name"].startswith((VICTIM, ATTACKER))])
    secret = {"authorization": f"Bearer {stack.secret}"}
    url = stack.ready["engine_url"]
    try:
        ids = [_create(stack, tenant) for tenant in tenants]
        stack.saltwall("quota", "set", VICTIM, "--reserve", RESERVE)
        eventually(lambda: stack.usage()["tenants"].get(ids[0], {}).get("reserve"), SETTLE_S)
        victim_key, *keys = (
            stack.saltwall("key", "create", tenant, "--plain").stdout.strip() for tenant in tenants
        )
        with httpx.Client(base_url=url, headers=secret, timeout=120, trust_env=False) as engine:
            yield Target("saltwall", stack.base_url, victim_key, keys, engine, stack, tenants[1:])
    finally:
        _delete(stack, tenants)


@contextmanager
def ceiling(target: Target) -> Iterator[None]:
    """The attackers have a ceiling meanwhile; stock vLLM knows none."""
    stack = target.stack
    if stack is None:
        yield
        return
    for tenant in target.attackers:
        stack.saltwall("quota", "set", tenant, "--ceiling", CEILING)
    try:
        yield
    finally:
        for tenant in target.attackers:
            stack.saltwall("quota", "set", tenant, "--ceiling", "none")


def _create(stack: Stack, tenant: str) -> str:
    made = json.loads(stack.saltwall("tenant", "create", tenant, "--json").stdout)
    return UUID(made["id"]).hex


def _delete(stack: Stack, tenants: Sequence[str]) -> None:
    for tenant in tenants:
        stack.saltwall("tenant", "delete", "--yes", tenant, check=False)
