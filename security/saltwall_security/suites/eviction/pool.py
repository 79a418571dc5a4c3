"""How large the target's KV cache is, and what is left there of whom, where it tells."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from saltwall_security.bounded_http import http_client
from saltwall_security.engine_control import Account, EngineControl, Usage, hex_id
from saltwall_security.errors import AuditError
from saltwall_security.target import Access, Target, Tenant

TIMEOUT_S = 10.0
METRICS = "/metrics"
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


async def find_pool(target: Target) -> Pool | None:
    """The pool, as the engine's control route or vLLM's own metrics tell; None where neither does.

    vLLM counts its null block, which holds nothing.
    """
    usage = await _usage(target)
    if usage is not None:
        return Pool(usage.blocks, usage.block_tokens)
    for base in (target.engine_url, target.url.removesuffix("/v1")):
        config = _CONFIG.search(await _text(base + METRICS)) if base else None
        labels = dict(_LABEL.findall(config[1])) if config else {}
        try:
            return Pool(int(labels["num_gpu_blocks"]) - 1, int(labels["block_size"]))
        except (KeyError, ValueError):
            continue
    return None


async def find_remains(target: Target, tenants: Sequence[Tenant]) -> Account | None:
    """What is left of all of them; None where the engine does not tell, or an id is unknown."""
    usage = await _usage(target)
    if usage is None or not all(tenant.id for tenant in tenants):
        return None
    accounts = [usage.accounts.get(name, Account()) for name in set(map(hex_id, tenants))]
    return Account(
        pinned=sum(account.pinned for account in accounts),
        running=sum(account.running for account in accounts),
        waiting=sum(account.waiting for account in accounts),
    )


async def _usage(target: Target) -> Usage | None:
    if Access.CONTROL not in target.access():
        return None
    try:
        async with EngineControl(target) as control:
            return await control.usage()
    except AuditError:
        return None


async def _text(url: str) -> str:
    async with http_client(TIMEOUT_S) as http:
        try:
            response = await http.get(url)
        except httpx.HTTPError:
            return ""
    return "" if response.is_error else response.text
