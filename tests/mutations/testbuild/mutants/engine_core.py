"""Defects of the EngineCore process that only a whole engine shows."""

import time
from typing import Any

from mutants import switch
from mutants.mutant import Mutant, Where

LOOKED_AT_TOKENS = 96
"""What stands for a whole prompt in a lookup: more than any chat template, less than a probe."""
VISIBLE_S = 0.15
"""A delay that an attacker sees over the network (seconds)."""

SHARED_CACHE = Mutant(
    "cache-as-on-stock",
    "All tenants have one salt, and a cached block is served to whoever asks: stock vLLM's cache.",
    Where.WIRE,
    "recovery",
    "G3",
)


@SHARED_CACHE.replaces("saltwall_tenants.wire.salt:derive_kv_salt")
def _(original: Any, secret: bytes, name: str, scope: str = "") -> bytes:
    return bytes(original(bytes(32), name, scope))


@SHARED_CACHE.replaces("saltwall_engine.pool:OwnedBlockPool.get_cached_block")
def _(original: Any, pool: Any, *args: Any) -> Any:
    from vllm.v1.core.block_pool import BlockPool

    return BlockPool.get_cached_block(pool, *args)


SLOW_FOREIGN = Mutant(
    "owner-checked-after-lookup",
    "Prompts are looked up for all tenants at once, and what turns out to be another's costs time.",
    Where.CORE,
    "timing",
    "G2",
)
FAST_FOREIGN = Mutant(
    "cold-tier-asked-first",
    "A slow tier is asked for prompts that no tenant has cached, and not for those that one has.",
    Where.CORE,
    "timing",
    "G2",
)
FOREIGN_COUNT = Mutant(
    "cached-tokens-of-another",
    "`cached_tokens` counts what any tenant has cached of the prompt, though nothing is shared.",
    Where.CORE,
    "isolation",
    "G1",
)


def _known_to(manager: Any, request: Any) -> tuple[str, Any]:
    """Who asked for this prompt first: "me", "another", or "nobody" before; and the request."""
    looked: dict[Any, Any] = switch.scratch()
    account = manager.block_pool.holder_of(request).account
    prompt = tuple(request.prompt_token_ids[:LOOKED_AT_TOKENS])
    once = looked.setdefault(("of", request.request_id), [])
    if not once:
        first = looked.setdefault(prompt, account)
        fresh = looked.setdefault(("by", prompt), request.request_id) == request.request_id
        once.append("nobody" if fresh else "me" if first is account else "another")
        return once[0], account
    return "", account  # the scheduler looks several times; it costs once


@SLOW_FOREIGN.replaces("saltwall_engine.kv_cache_manager:TenantKVCacheManager.get_computed_blocks")
def _(original: Any, manager: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
    if _known_to(manager, request)[0] == "another":
        time.sleep(VISIBLE_S)
    return original(manager, request, *args, **kwargs)


@FAST_FOREIGN.replaces("saltwall_engine.kv_cache_manager:TenantKVCacheManager.get_computed_blocks")
def _(original: Any, manager: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
    if _known_to(manager, request)[0] == "nobody":
        time.sleep(VISIBLE_S)
    return original(manager, request, *args, **kwargs)


@FOREIGN_COUNT.replaces("saltwall_engine.kv_cache_manager:TenantKVCacheManager.get_computed_blocks")
def _(original: Any, manager: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
    if _known_to(manager, request)[0] == "another":
        switch.scratch()["foreign", request.request_id] = True
    return original(manager, request, *args, **kwargs)


@FOREIGN_COUNT.replaces("saltwall_engine.scheduler:_Guarded.schedule")
def _(original: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
    output = original(scheduler, *args, **kwargs)
    for new in output.scheduled_new_reqs:
        request = scheduler.requests[new.req_id]
        if switch.scratch().pop(("foreign", new.req_id), False) and request.prefill_stats:
            size = scheduler.block_size
            request.prefill_stats.num_cached_tokens = (request.num_prompt_tokens - 1) // size * size
    return output


STEP_BOUND_OFF = Mutant(
    "step-bound-off",
    "A step computes as many prompt tokens as it can, whoever waits for it to end.",
    Where.SCHEDULER,
    "scheduler",
    "G6",
)


@STEP_BOUND_OFF.replaces("saltwall_engine.step_budget:StepBudget.tokens")
def _(original: Any, budget: Any) -> int:
    return int(budget.most)


IDLE_TENANT_EVICTED = Mutant(
    "reserve-only-at-work",
    "A reserve counts only while its tenant has a request: between two, others evict its blocks.",
    Where.CORE,
    "eviction",
    "G4",
)


@IDLE_TENANT_EVICTED.replaces("saltwall_engine.ledger:Ledger._settle")
def _(original: Any, ledger: Any, account: Any) -> None:
    if account.live:
        original(ledger, account)
        return
    ledger.evictable += account.idle - account.evictable
    account.evictable = account.idle


PURGE_OFF = Mutant(
    "purge-off",
    "What a revoked salt has cached stays in the hash table.",
    Where.CORE,
    "rotation",
    "G9",
)


@PURGE_OFF.replaces("saltwall_engine.pool:OwnedBlockPool.purge")
def _(original: Any, pool: Any, owners: Any, seconds: float) -> tuple[int, int]:
    pool.remains.end(owners)
    return 0, 0


ZEROIZE_OFF = Mutant(
    "zeroize-off",
    "Purged blocks are not overwritten.",
    Where.CORE,
    "rotation",
    "G9",
)
ZEROIZE_HALF = Mutant(
    "zeroize-half",
    "Of the purged blocks every other one is overwritten.",
    Where.CORE,
    "rotation",
    "G9",
)


@ZEROIZE_OFF.replaces("saltwall_engine.erasure:overwrite")
def _(original: Any, worker: Any, block_ids: list[int]) -> None:
    return None


@ZEROIZE_HALF.replaces("saltwall_engine.erasure:overwrite")
def _(original: Any, worker: Any, block_ids: list[int]) -> None:
    original(worker, block_ids[::2])


RETIRED_RUN_ON = Mutant(
    "retired-requests-run-on",
    "Requests that run under a salt whose grace has ended are left alone.",
    Where.CORE,
    "rotation",
    "G9",
)
SUSPENDED_RUN_ON = Mutant(
    "revoked-requests-run-on",
    "Running requests of a suspended tenant are left alone.",
    Where.CORE,
    "keys",
    "G7",
)


@RETIRED_RUN_ON.replaces("saltwall_engine.engine_core:abort")
@SUSPENDED_RUN_ON.replaces("saltwall_engine.engine_core:abort")
def _(original: Any, core: Any, whose: Any) -> None:
    return None


@SUSPENDED_RUN_ON.replaces("saltwall_platform.inflight:InFlight._verdict")
async def _(original: Any, in_flight: Any, presented: str) -> None:
    return None
