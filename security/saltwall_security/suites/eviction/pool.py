"""How large the target's KV cache is, and what is left there of whom, where it tells."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from saltwall_security.target import Target, Tenant
from saltwall_security.trust import system_trust

TIMEOUT_S = 10.0
USAGE, METRICS = "/saltwall/v1/usage", "/metrics"
_CONFIG = re.compile(r"^vllm:cache_config_info\{(.*)\}", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Pool:
    """The KV cache of one engine, in blocks; `block_tokens` tokens fit in each."""

    blocks: int
    block_tokens: int

    @property
    def tokens(self) -> int:
        """How many tokens it holds."""
        return self.blocks * self.block_tokens


@dataclass(frozen=True)
class Remains:
    """What the engine still does and holds for some tenants: requests, and blocks that they pin."""

    requests: int
    pinned: int


async def find_pool(target: Target) -> Pool | None:
    """The pool, as the engine's control route or vLLM's own metrics tell; None where neither does.

    vLLM counts its null block, which holds nothing.
    """
    usage = await _usage(target)
    if usage is not None:
        capacity = usage["capacity"]
        return Pool(int(capacity["blocks"]), int(capacity["block_tokens"]))
    for base in (target.engine_url, target.url.removesuffix("/v1")):
        config = _CONFIG.search(await _text(base + METRICS)) if base else None
        labels = dict(_LABEL.findall(config[1])) if config else {}
        try:
            return Pool(int(labels["num_gpu_blocks"]) - 1, int(labels["block_size"]))
        except (KeyError, ValueError):
            continue
    return None


async def find_remains(target: Target, tenants: Sequence[Tenant]) -> Remains | None:
    """What is left of the tenants; None where the engine does not tell, or an id is unknown."""
    usage = await _usage(target)
    ids = [tenant.id.replace("-", "") for tenant in tenants if tenant.id]
    if usage is None or len(ids) < len(tenants):
        return None
    rows = [usage["tenants"].get(name, {}) for name in ids]
    return Remains(
        sum(row.get("running", 0) + row.get("waiting", 0) for row in rows),
        sum(row.get("pinned", 0) for row in rows),
    )


async def _usage(target: Target) -> Mapping[str, Any] | None:
    if not (target.control_secret and target.engine_url):
        return None
    secret = {"authorization": f"Bearer {target.control_secret}"}
    response = await _get(target.engine_url + USAGE, secret)
    return None if response is None or response.is_error else response.json()


async def _text(url: str) -> str:
    response = await _get(url, {})
    return "" if response is None or response.is_error else response.text


async def _get(url: str, headers: Mapping[str, str]) -> httpx.Response | None:
    async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False, verify=system_trust()) as http:
        try:
            return await http.get(url, headers=headers)
        except httpx.HTTPError:
            return None
