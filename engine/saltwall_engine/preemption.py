"""Making room before a step: which running requests give way, and for whom.

vLLM preempts in the middle of scheduling, and takes the newest request, whosever it is. Here a
step's needs are known before it begins, so that it never comes to that:

- a tenant that would pass its ceiling preempts its own newest request;
- when the pool is short, the newest request of the tenant furthest above its reserve gives way, by
  its weight; never one of a tenant within its reserve, unless that tenant itself asks for more;
- a waiting request of a tenant below its reserve makes borrowers give way like a running one;
- when all sequence slots are taken, a tenant below its share of them gets one from a tenant above.
"""

import time
from collections.abc import Iterable
from typing import Any

from saltwall_engine.ledger import Account

_URGENT_PER_STEP = 8
_SLOT_LOOKS = 8


def make_room(scheduler: Any) -> None:
    """Preempts what has to give way, so that every running request gets its blocks in this step."""
    waiting = scheduler.waiting
    if scheduler.running and (waiting.urgent or not _ample(scheduler)):
        while (victim := _for_running(scheduler)) is not None:
            _preempt(scheduler, *victim)
    if len(scheduler.running) >= scheduler.max_num_active_reqs:
        _for_slot(scheduler)
    for line in list(waiting.urgent)[:_URGENT_PER_STEP]:
        _for_urgent(scheduler, line.account)


def _ample(scheduler: Any) -> bool:
    """Whether no shortage is possible in this step, judged without looking at every request."""
    ledger = scheduler.ledger
    most = len(scheduler.running) * scheduler.decode_blocks + scheduler.blocks_for(
        scheduler.max_num_scheduled_tokens
    )
    if ledger.supply < most:
        return False
    if not ledger.ceilings:
        return True
    accounts = {request.saltwall_holder.account for request in scheduler.running}
    return all(account.ceiling - account.pinned >= most for account in accounts)


def _for_running(scheduler: Any) -> tuple[Any, Account] | None:
    """A running request that must give way for the others' next step, and to which tenant."""
    ledger = scheduler.ledger
    asked: dict[Account, int] = {}
    for request, pins in step_pins(scheduler):
        account = request.saltwall_holder.account
        asked[account] = asked.get(account, 0) + pins
        limit = account.old_ceilings.get(request.request_id, account.ceiling)
        if pins and account.pinned + asked[account] > limit:
            return _newest(scheduler, account), account
    short = sum(account.draws(pins) for account, pins in asked.items()) - ledger.supply
    if not asked or (short <= 0 and not scheduler.shortfall):
        return None
    scheduler.shortfall = False
    victim = _borrower(scheduler)
    if victim is not None:
        return _newest(scheduler, victim), max(asked, key=lambda a: a.draws(asked[a]))
    # Nobody is above its reserve: the shortage is made by tenants that grow past their own.
    victim = max(asked, key=lambda a: (a.pinned + asked[a] - a.reserve) / a.weight)
    return _newest(scheduler, victim), victim


def step_pins(scheduler: Any) -> list[tuple[Any, int]]:
    """How many blocks each running request pins in the next step, as vLLM will schedule it.

    Follows the running loop of v1/core/sched/scheduler.py.
    """
    tokens = scheduler.max_num_scheduled_tokens
    shares = scheduler.shares.copy() if scheduler.shares is not None else None
    long_prefill = scheduler.long_prefill_tokens()
    found = []
    for request in scheduler.running:
        if tokens <= 0:
            break
        placeholders, computed = request.num_output_placeholders, request.num_computed_tokens
        if (
            placeholders > 0
            and computed + 2 - placeholders >= request.num_prompt_tokens + request.max_tokens
        ) or scheduler.current_step + 1 < request.next_decode_eligible_step:
            continue
        new = min(
            request.num_tokens_with_spec + placeholders - computed,
            long_prefill,
            tokens,
            scheduler.max_model_len - computed - scheduler.num_sampled_tokens_per_step,
        )
        if shares is not None and not scheduler.decodes(request, computed, new):
            account = request.saltwall_holder.account
            new = min(new, shares.of(account))
            shares.spend(account, new)
        if new > 0:
            tokens -= new
            found.append((request, scheduler.pins(request, computed, new)))
    return found


def _for_urgent(scheduler: Any, account: Account) -> None:
    """Makes borrowers give way until the head of a tenant below its reserve fits.

    A head that reaches beyond the reserve takes only from who is further above its own.
    """
    waiting = scheduler.waiting
    pins, hits = scheduler.predict(waiting.head(account))
    above = max(0.0, (account.pinned + pins - account.reserve) / account.weight)

    def short() -> bool:
        running = _by_account(step_pins(scheduler)).items()  # they come first in the step
        taken = sum(other.draws(blocks) for other, blocks in running)
        return account.draws(pins, hits) + taken > scheduler.ledger.supply

    while short():
        victim = _borrower(scheduler)
        if victim is None or _above(victim) <= above:
            if above:
                waiting.park(account, pins, hits, reclaim=False)
            return
        _preempt(scheduler, _newest(scheduler, victim), account)


def _by_account(counts: Iterable[tuple[Any, int]]) -> dict[Account, int]:
    """Adds up what is counted of each request, by its tenant."""
    sums: dict[Account, int] = {}
    for request, count in counts:
        account = request.saltwall_holder.account
        sums[account] = sums.get(account, 0) + count
    return sums


def _for_slot(scheduler: Any) -> None:
    """Takes a slot from a tenant that has more than its share, for one with less that waits.

    If that one lacks blocks too, and is below its reserve, they are reclaimed first: whoever gives
    way for them leaves a slot as well.
    """
    waiting = scheduler.waiting
    per_weight = scheduler.max_num_active_reqs / waiting.weight

    def entitled(account: Account) -> int:
        return max(1, int(per_weight * account.weight))

    running = _by_account((request, 1) for request in scheduler.running)
    victim = max(running, key=lambda account: running[account] - entitled(account))
    for head in waiting.upcoming(_SLOT_LOOKS):
        account = head.saltwall_holder.account
        if account.running >= entitled(account):
            continue
        if not scheduler.fits_now(head):
            if account.pinned < account.reserve:
                waiting.reclaim_for(account)
        elif running[victim] > entitled(victim):
            _preempt(scheduler, _newest(scheduler, victim), account)
            waiting.put_first(account)
            return


def _borrower(scheduler: Any) -> Account | None:
    """The tenant with running requests that is furthest above its reserve, by its weight."""
    accounts = {request.saltwall_holder.account for request in scheduler.running}
    return max((a for a in accounts if _above(a) > 0), key=_above, default=None)


def _above(account: Account) -> float:
    """How far a tenant is above its reserve with what it pins, by its weight (blocks)."""
    return (account.pinned - account.reserve) / account.weight


def _newest(scheduler: Any, account: Account) -> Any:
    """The tenant's request that vLLM would preempt first."""
    theirs = [r for r in scheduler.running if r.saltwall_holder.account is account]
    if scheduler.by_priority:
        return max(theirs, key=lambda r: (r.priority, r.arrival_time))
    return theirs[-1]


def _preempt(scheduler: Any, request: Any, cause: Account) -> None:
    scheduler.running.remove(request)
    scheduler._preempt_request(request, time.monotonic())
    scheduler.preempted_now.add(request.request_id)
    account = request.saltwall_holder.account
    if account is not cause:
        cause.preemptions_caused += 1
    account.preemptions_suffered += 1
