"""The scheduler class that vLLM is told to use (`--scheduler-cls`)."""

import logging
import os
import time
from collections import Counter
from collections.abc import Iterable
from math import inf
from pathlib import Path
from typing import Any
from uuid import UUID

import vllm
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from saltwall_engine import block_hash, boot, compat, engine_core, erasure, fit
from saltwall_engine.admission import Admission
from saltwall_engine.capacity import blocks_for, capacity_of, groups_of
from saltwall_engine.errors import BootRefused
from saltwall_engine.kv_cache_manager import TenantKVCacheManager, upgrade
from saltwall_engine.ledger import Account, Ledger, Quota
from saltwall_engine.preemption import make_room
from saltwall_engine.remains import Remains
from saltwall_engine.step_budget import DEFAULT_STEP_MS, Shares, StepBudget
from saltwall_engine.waiting import TenantQueue
from saltwall_tenants.wire import EngineKeys, KeyFileError
from saltwall_tenants.wire.attestation import VECTOR_DIGEST

KEYS_VARIABLE = "SALTWALL_ENGINE_KEYS"
STEP_VARIABLE = "SALTWALL_STEP_MS"
DECODE_COST = 2
"""What a decoded token counts beside a prefill token (VTC)."""
OUTGROWN_S = 60.0
"""How long a preempted request that quotas have left no room for may wait for some (seconds)."""
_LOOKUPS_PER_STEP = 1 << 15
"""Tokens of waiting requests that are looked up for that in one step; the last may exceed them."""
_LOOKED_UP_FOR = 16
"""Steps for which what was found is good enough: it is a demand, and no allocation."""
_FAILURES_PER_PASS = 64
"""Lines that one step may find short of blocks or tokens."""
_TRIM_PER_STEP = 200
"""Idle blocks above a lowered ceiling that are evicted at once (well under a millisecond)."""

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


def read_step_ms() -> float:
    """How long a step may take while several tenants have work (milliseconds; 0 for no bound).

    Raises:
        BootRefused: the environment says something else than a number from 0 to 60,000.
    """
    text = os.environ.get(STEP_VARIABLE, str(DEFAULT_STEP_MS))
    try:
        step_ms = float(text)
    except ValueError:
        step_ms = -1.0
    if not 0 <= step_ms <= 60_000:
        raise BootRefused(
            [f"{STEP_VARIABLE} is {text!r}: give milliseconds from 0 (no bound) to 60000"]
        )
    return step_ms


class _Guarded(Scheduler):
    """What Saltwall adds to either of vLLM's schedulers."""

    kv_cache_manager: TenantKVCacheManager
    waiting: TenantQueue

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        boot.refuse(
            boot.config_problems(self.vllm_config, vllm.__version__)
            + boot.environment_problems(os.environ)
            + block_hash.problems()
            + engine_core.problems()
            + erasure.problems(self.vllm_config)
        )
        self.admission = Admission(read_keys())
        upgrade(self.kv_cache_manager, self.admission.allows)
        self.by_priority = self.policy == SchedulingPolicy.PRIORITY
        self.waiting = TenantQueue(
            self.kv_cache_manager.block_pool, self.policy, prefilling=self._inflight_prefills
        )
        self.step_budget = StepBudget(
            read_step_ms(), self.block_size, self.max_num_scheduled_tokens
        )
        self.shares: Shares | None = None
        self.eraser: erasure.Eraser | None = None
        """Overwrites purged blocks; None where that is off."""
        self.alarms: Counter[str] = Counter()
        self.shortfall = False
        """The last step found too few blocks for a running request, against all foresight."""
        self.slots_taken = False
        """At the end of the last step no slot was free."""
        self.preempted_now: set[str] = set()
        self._slot_tokens = self.max_num_scheduled_tokens // self.max_num_active_reqs
        """The least that an admission counts: tiny requests take slots if not tokens."""
        self._decode_tokens = 1 + self.num_spec_tokens
        self.decode_blocks = self.blocks_for(self._decode_tokens + self.num_lookahead_tokens)
        self._needs = blocks_for(groups_of(self), self.max_model_len)
        self._scheduling = False
        self._prefill_tokens = self._failures = self._lookups = 0
        self._hit: tuple[Any, Any] | None = None
        self._trimming: set[Account] = set()
        self._outgrown: dict[str, float] = {}
        self.vector_digest = block_hash.vector_digest()
        if self.vector_digest != VECTOR_DIGEST:
            _log.error("Saltwall: block hashes differ from the published test vectors; not ready")

    @property
    def ledger(self) -> Ledger:
        """Who holds how many blocks."""
        return self.kv_cache_manager.block_pool.ledger

    # One step.

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """As stock's, after making room for what runs and for what is entitled to run."""
        self.waiting.begin_pass(stuck=not self.running)
        self.preempted_now.clear()
        self._prefill_tokens = self._failures = self._lookups = 0
        unmet, self.kv_cache_manager.unmet = self.kv_cache_manager.unmet, None
        if unmet is not None and self.connector is None:
            self._note_unmet(unmet)
        self.trim()
        self.shares = self._share_step()
        if self.connector is None:
            make_room(self)
        self._hit = None
        began = self.step_budget.clock()
        self._scheduling = True
        try:
            output = super().schedule(*args, **kwargs)
        finally:
            self._scheduling = False
        output.saltwall_step = began, self._prefill_tokens
        self.slots_taken = len(self.running) >= self.max_num_active_reqs
        self.erase()
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """As stock's, and learns how long the step took."""
        step = getattr(scheduler_output, "saltwall_step", None)
        if step is not None:
            self.step_budget.observe(*step)
        return super().update_from_output(scheduler_output, model_runner_output)

    def erase(self) -> None:
        """Has the workers overwrite what is due, before the step that is sent next."""
        remains = self.kv_cache_manager.block_pool.remains
        if remains.due and self.eraser is not None:
            self.eraser.send(remains.take())

    def begin_erasing(self, eraser: erasure.Eraser) -> None:
        """From now on purged blocks are overwritten."""
        self.eraser = eraser
        size = capacity_of(self).block_bytes or 1
        batch = erasure.batch_bytes(self.vllm_config) // size
        self.kv_cache_manager.block_pool.remains = Remains(max(1, batch))

    def _share_step(self) -> Shares | None:
        """The step's prefill tokens by tenant; None when one tenant alone may have them all."""
        if not self.waiting.contended or not self.scheduler_config.enable_chunked_prefill:
            return None
        # What decodes is not kept from it by prompts that stand before it in vLLM's order.
        decodes = (len(self.running) - len(self._inflight_prefills)) * self._decode_tokens
        left = max(self.step_budget.least, self.max_num_scheduled_tokens - decodes)
        tokens = self.waiting.step_tokens = min(self.step_budget.tokens(), left)
        demands: dict[Account, int] = {}
        for request in self.running if self._inflight_prefills else ():
            if request in self._inflight_prefills:
                account = request.saltwall_holder.account
                left = request.num_tokens - request.num_computed_tokens
                demands[account] = demands.get(account, 0) + left
        slots = self.max_num_active_reqs - len(self.running)
        if slots > 0 and self.connector is None:
            self._add_upcoming(demands, tokens, slots)
        return Shares(tokens, demands)

    def _add_upcoming(self, demands: dict[Account, int], tokens: int, most: int) -> None:
        """Adds the prefill tokens of waiting requests whose blocks are there.

        Tokens that are kept for a request that cannot have them would be nobody's.
        """
        pins: dict[Account, int] = {}
        served: dict[Account, float] = {}
        for request in self.waiting.upcoming(most, served.__getitem__):
            account = request.saltwall_holder.account
            before, blocks = pins.get(account), self._most_blocks(request)
            if before is None:
                fits = self._seems_to_fit(request)
            else:
                fits = before + blocks <= self.ledger.allowance(account)
            if not fits:
                served[account] = inf
                continue
            pins[account] = (before or 0) + blocks
            # What was not looked up asks for nothing, and may have what others leave.
            if self._recent(request) is None and self._lookups < _LOOKUPS_PER_STEP:
                self.predict(request)
            _, _, cached = self._recent(request) or (0, 0, request.num_tokens)
            demand = request.num_tokens - cached
            demands[account] = demands.get(account, 0) + demand
            counted = max(demand, self._slot_tokens) / account.weight
            served[account] = served.get(account, 0.0) + counted
            tokens -= demand
            if tokens <= 0:
                break

    def _seems_to_fit(self, request: Any) -> bool:
        """Whether a tenant's head can be admitted, by the last look at it."""
        account = request.saltwall_holder.account
        ceiling = account.old_ceilings.get(request.request_id)
        if self._most_blocks(request) <= self.ledger.allowance(account, 0, ceiling):
            return True
        pins, hits, _ = self._recent(request) or (self.ledger.total + 1, 0, 0)
        if pins <= self.ledger.allowance(account, hits, ceiling):
            return True
        if self._lookups >= _LOOKUPS_PER_STEP:
            return False
        if self.waiting.is_urgent(account):  # room may be made for it, and tokens granted
            return self._lacks(request) is None
        return self.admissible(request)

    def _recent(self, request: Any) -> tuple[int, int, int] | None:
        """The pins, idle hits and cached tokens that `predict` found for a waiting request.

        A look takes as long as the prompt, so that few are made in a step, and each seldom again.

        Returns:
            What was found; None if nothing was, or too long ago.
        """
        at, stored, found = getattr(request, "saltwall_found", (-inf, None, None))
        outdated = stored != request.saltwall_holder.account.stored
        return None if outdated and self.current_step >= at + _LOOKED_UP_FOR else found

    def grant(self, account: Account) -> None:
        """Room was made for the tenant's head: it is admitted, if with few tokens at first."""
        if self.shares is not None:
            self.shares.granted[account] = self.step_budget.least

    def decodes(self, request: Any, computed: int, new: int) -> bool:
        """Whether these `new` tokens of a request continue its output, not its prompt."""
        return new <= self._decode_tokens and computed >= request.num_prompt_tokens

    def _reserve_prefill_lookahead(
        self, request: Any, num_computed_tokens: int, num_new_tokens: int
    ) -> int:
        """Bounds a request's tokens by its tenant's share of the step, and counts them.

        vLLM asks this of every request, running or waiting, last before it allocates.
        """
        account = request.saltwall_holder.account
        if (
            num_new_tokens <= self._decode_tokens
            and num_computed_tokens >= request.num_prompt_tokens
        ):
            account.tokens += DECODE_COST * num_new_tokens / account.weight
            return num_new_tokens
        shares, admitting = self.shares, request.status != RequestStatus.RUNNING
        if shares is not None and (share := shares.of(account, admitting)) < num_new_tokens:
            if self.need_mamba_block_aligned_split:
                size = self.cache_config.block_size
                share = min(num_new_tokens, max(share // size * size, size))
            num_new_tokens = share
        num_new_tokens = super()._reserve_prefill_lookahead(
            request, num_computed_tokens, num_new_tokens
        )
        if shares is not None:
            shares.spend(account, num_new_tokens)
            if admitting:
                shares.granted.pop(account, None)
        served = num_new_tokens
        if admitting:  # it takes a slot
            served = max(served, self._slot_tokens)
            self.waiting.compete(account)
        account.tokens += served / account.weight
        self._prefill_tokens += num_new_tokens
        return num_new_tokens

    def long_prefill_tokens(self) -> int:
        """The most that vLLM lets one request prefill in a step."""
        config = self.scheduler_config
        alone = sum(self.get_request_counts()) <= 1
        if (
            alone
            or config.long_prefill_token_threshold <= 0
            or self.adaptive_long_prefill_threshold
        ):
            return self.max_num_scheduled_tokens
        return config.long_prefill_token_threshold

    # What a request needs.

    def blocks_for(self, tokens: int) -> int:
        """The most blocks that this many tokens can need, over all KV cache groups."""
        blocks = 0
        managers = self.kv_cache_manager.coordinator.single_type_managers
        for manager in managers:
            need = -(-tokens // manager.block_size) + (len(managers) > 1)
            most = manager.max_admission_blocks_per_request
            blocks += need if most is None else min(need, most)
        return blocks

    def _most_blocks(self, request: Any) -> int:
        """The most blocks that a waiting request can need when it is admitted."""
        return self.blocks_for(request.num_tokens + self.num_lookahead_tokens)

    def fit(self, request: Any) -> None:
        """Lowers what a new request may generate to what fits its tenant's share.

        Raises:
            DoesNotFit: the prompt, or a `max_tokens` below what the model's context leaves, cannot.
        """
        left_open = request.max_tokens >= self.max_model_len - request.num_prompt_tokens
        request.max_tokens = fit.fit(
            request.num_prompt_tokens,
            request.max_tokens,
            not left_open,
            self.ledger.limit(self.kv_cache_manager.block_pool.holder_of(request).account),
            self._needs,
            self.num_lookahead_tokens,
        )

    def _fits_ever(self, request: Any) -> bool:
        """Whether a request that waits can still be served under the quotas of today."""
        whole = request.num_prompt_tokens + request.max_tokens - 1 + self.num_lookahead_tokens
        if self._needs(whole) <= self.ledger.limit(request.saltwall_holder.account):
            return True
        if not request.num_preemptions or not self.running:
            return False
        # Admitted under older quotas: it may yet finish beside what others leave, for a while.
        since = self._outgrown.setdefault(request.request_id, time.monotonic())
        return time.monotonic() < since + OUTGROWN_S

    def pins(self, request: Any, computed: int, new: int) -> int:
        """How many blocks a running request pins when it computes `new` tokens more."""
        manager = self.kv_cache_manager
        return int(
            manager.coordinator.get_num_blocks_to_allocate(
                request_id=request.request_id,
                num_tokens=min(computed + new + self.num_lookahead_tokens, self.max_model_len),
                new_computed_blocks=manager.empty_kv_cache_blocks.blocks,
                num_encoder_tokens=0,
                total_computed_tokens=computed,
                num_local_computed_tokens=computed,
                num_tokens_main_model=computed + new,
                prefill_end=max(request.num_prompt_tokens, request.num_tokens - 1),
            )
        )

    def predict(self, request: Any) -> tuple[int, int]:
        """How many blocks a waiting request pins when it is admitted, as `allocate_slots` reckons.

        Returns:
            The blocks, and those of them that are idle ones it finds cached.
        """
        manager = self.kv_cache_manager
        hit = super()._get_local_prefix_cache_hit(request)
        self._hit = request, hit
        self._lookups += request.num_tokens
        found, cached = hit[:2]
        need = {
            "request_id": request.request_id,
            "new_computed_blocks": found.blocks,
            "num_encoder_tokens": 0,
            "total_computed_tokens": cached,
            "num_local_computed_tokens": cached,
            "prefill_end": max(request.num_prompt_tokens, request.num_tokens - 1),
        }
        main = cached + min(request.num_tokens - cached, self.max_num_scheduled_tokens)
        pins = manager.coordinator.get_num_blocks_to_allocate(
            num_tokens=min(main + self.num_lookahead_tokens, self.max_model_len),
            num_tokens_main_model=main,
            **need,
        )
        if self.scheduler_reserve_full_isl:
            full = min(request.num_tokens, self.max_model_len)
            whole = manager.coordinator.get_num_blocks_to_allocate(
                num_tokens=full, num_tokens_main_model=full, apply_admission_cap=True, **need
            )
            pins = max(pins, whole)
        hits = manager.idle_hits(found.blocks, cached)
        stored = request.saltwall_holder.account.stored
        request.saltwall_found = self.current_step, stored, (pins, hits, cached)
        return pins, hits

    # Admission.

    def _handle_blocked_waiting_request(self, request: Any) -> bool:
        """As stock's; a request that lacks blocks or tokens holds up its own tenant alone."""
        if not super()._handle_blocked_waiting_request(request):
            self.waiting.stand_by(request.saltwall_holder.account)
            return False
        if self.connector is not None or self._holds_kv_blocks(request):
            return True
        account = request.saltwall_holder.account
        if request.request_id in self.preempted_now:
            # The model runner must see a step without it before it comes back.
            self.waiting.sit_out(account)
            return False
        if self.shares is not None and self.shares.of(account, admitting=True) <= 0:
            self.waiting.sit_out(account)
            return self._passed_over(self.shares.exhausted)
        if self.admissible(request):
            self.waiting.admit(account)
            self._outgrown.pop(request.request_id, None)
            return True
        if self.shares is not None:
            self.shares.give_up(account)
        return self._passed_over()

    def admissible(self, request: Any) -> bool:
        """Whether a waiting request's blocks are there; if not, its line is parked.

        What can never fit any more is finished with an error.
        """
        account = request.saltwall_holder.account
        if request.num_preemptions or self._fits_ever(request):
            lacks = self._lacks(request)
            if lacks is None:
                return True
            if self._fits_ever(request):
                self.waiting.park(account, *lacks)
                return False
        self.waiting.sit_out(account)
        compat.fail(self, request, "the request no longer fits its tenant's quota")
        return False

    def _lacks(self, request: Any) -> tuple[int, int] | None:
        """The blocks that a waiting request pins, and its idle hits, if they are not there now."""
        account = request.saltwall_holder.account
        ceiling = account.old_ceilings.get(request.request_id)
        if self._most_blocks(request) <= self.ledger.allowance(account, 0, ceiling):
            return None
        pins, hits = self.predict(request)
        return (pins, hits) if pins > self.ledger.allowance(account, hits, ceiling) else None

    def _passed_over(self, finished: bool = False) -> bool:
        """Bounds what one pass may cost; who is not tried in it is so in the next."""
        self._failures += 1
        if finished or self._failures >= _FAILURES_PER_PASS:
            self.waiting.close_pass()
        return False

    def _get_local_prefix_cache_hit(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """As stock's; what `predict` has just found is not looked up twice."""
        hit, self._hit = self._hit, None
        if hit is not None and hit[0] is request and not any((*args, *kwargs.values())):
            return hit[1]
        return super()._get_local_prefix_cache_hit(request, *args, **kwargs)

    def _note_unmet(self, request: Any) -> None:
        """Takes note of a request for which fewer blocks were there than foreseen."""
        if request.is_finished():
            return
        if request in self.running:
            self.shortfall = True
            self.alarms["in_loop_shortfall"] += 1
            _log.error("Saltwall: a running request found fewer blocks than foreseen")
        elif request.saltwall_holder.account.waiting:
            self.alarms["admission_shortfall"] += 1
            self.waiting.sit_out(request.saltwall_holder.account)

    def _request_blocks_can_be_freed(self, request: Any) -> bool:
        """As stock's, but never while scheduling, where stock would preempt a victim of its own."""
        if self._scheduling and self.connector is None:
            return False
        return bool(super()._request_blocks_can_be_freed(request))

    # Requests come and go.

    def add_request(self, request: Any) -> None:
        """As stock's."""
        if request.request_id not in self.requests:
            self.waiting.arrive(self.kv_cache_manager.block_pool.holder_of(request).account)
        super().add_request(request)

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """As stock's; the tenant's next request may fit now."""
        account = request.saltwall_holder.account
        self.waiting.leave(account)
        account.old_ceilings.pop(request.request_id, None)
        self._outgrown.pop(request.request_id, None)
        freed = super()._free_request(request, *args, **kwargs)
        self.waiting.unpark(account)
        return freed

    def set_quota(self, tenant: UUID, quota: Quota) -> None:
        """Changes one tenant's terms (`set_quotas`)."""
        self.set_quotas([(tenant, quota)])

    def set_quotas(self, quotas: Iterable[tuple[UUID, Quota]]) -> None:
        """Changes tenants' terms, in order; admitted requests finish under the ceiling they had.

        Raises:
            QuotaError: the reserves would add up to more than the pool; those before are in force.
        """
        pool = self.kv_cache_manager.block_pool
        admitted: dict[Account, list[Any]] = {}
        for request in self.running:
            admitted.setdefault(request.saltwall_holder.account, []).append(request)
        for tenant, quota in quotas:
            account = pool.ledger.account(tenant)
            before = account.quota
            pool.set_quota(tenant, quota)
            self.waiting.reweigh(account, before.weight)
            old = account.old_ceilings.items()
            account.old_ceilings = {i: blocks for i, blocks in old if blocks > quota.ceiling}
            if quota.ceiling < before.ceiling:
                waiting = (r for r in self.waiting.of(account) if r.num_preemptions)
                for request in (*admitted.get(account, ()), *waiting):
                    account.old_ceilings.setdefault(request.request_id, before.ceiling)
                self._trimming.add(account)
            self.waiting.unpark(account)
        self.trim()

    def trim(self) -> int:
        """Evicts some of what tenants hold idle above lowered ceilings.

        Returns:
            How many tenants still do.
        """
        for account in list(self._trimming)[:1]:
            if self.kv_cache_manager.block_pool.trim(account, _TRIM_PER_STEP):
                self._trimming.discard(account)
        return len(self._trimming)

    def check_integrity(self) -> None:
        """Raises:
        AssertionError: pool, ledger and queues disagree.
        """
        self.kv_cache_manager.block_pool.check_integrity()
        self.waiting.check_integrity()
        live = Counter(r.saltwall_holder.account for r in self.requests.values())
        for account in self.ledger.accounts.values():
            if account.live != live[account]:
                raise AssertionError(f"{account.tenant}: {account.live} live of {live[account]}")


class TenantScheduler(_Guarded):
    """vLLM's synchronous scheduler, guarded."""


class TenantAsyncScheduler(_Guarded, AsyncScheduler):
    """vLLM's asynchronous scheduler, guarded."""


def scheduler_class(vllm_config: Any, **kwargs: Any) -> Scheduler:
    """Builds the guarded scheduler that fits the config; EngineCore calls this like a class."""
    asynchronous = vllm_config.scheduler_config.async_scheduling
    cls = TenantAsyncScheduler if asynchronous else TenantScheduler
    return cls(vllm_config=vllm_config, **kwargs)
