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
from heapq import heapify, heappop, heapreplace
from itertools import islice
from typing import Any

from saltwall_engine.ledger import Account
from saltwall_engine.waiting import URGENT_PER_STEP

_SLOT_LOOKS = 64
_TURN_TOKENS = 1000.0
"""What a tenant is served more than one that waits for a slot, before it is that one's turn."""


def make_room(scheduler: Any) -> None:
    """Preempts what has to give way, so that every running request gets its blocks in this step."""
    waiting = scheduler.waiting
    free = scheduler.max_num_active_reqs - len(scheduler.running)
    if len(waiting) and (free <= 0 or scheduler.slots_taken):
        _for_slot(scheduler, free)
    if not scheduler.running or (not waiting.urgent and _ample(scheduler)):
        return
    while _Room(scheduler).for_running():  # who gave way left tokens, which others now spend
        pass
    room = _Room(scheduler)
    for line in list(islice(waiting.urgent, URGENT_PER_STEP)):
        room.for_waiting(line.account)


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


def _above(account: Account, asked: int = 0) -> float:
    """How far a tenant is above its reserve with what it pins and asks, by weight (blocks)."""
    return (account.pinned + asked - account.reserve) / account.weight


class _Room:
    """The blocks that the next step takes, kept up to date while requests give way."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.pins = step_pins(scheduler)
        self.running: dict[Account, list[Any]] = {}
        self.asked: dict[Account, int] = {}
        for request in scheduler.running:
            account = request.saltwall_holder.account
            self.running.setdefault(account, []).append(request)
            pins = self.pins.get(request.request_id, 0)
            self.asked[account] = self.asked.get(account, 0) + pins
        self.draws = sum(account.draws(asked) for account, asked in self.asked.items())
        self.borrowers = [(-_above(a), id(a), a) for a in self.running if _above(a) > 0]
        heapify(self.borrowers)

    def for_running(self) -> bool:
        """Makes the running requests' blocks available; says whether any request gave way."""
        scheduler, gave_way = self.scheduler, False
        for account, asked in self.asked.items():
            while asked and self._passes_ceiling(account):
                self._give_way(account, account)
                gave_way, asked = True, self.asked[account]
        while self.draws > scheduler.ledger.supply or scheduler.shortfall:
            scheduler.shortfall = False
            asking = max(self.asked, key=lambda a: a.draws(self.asked[a]))
            victim = self._borrower()
            if victim is None:  # tenants that grow past their own reserve make the shortage
                victim = asking = max(self.asked, key=lambda a: _above(a, self.asked[a]))
            self._give_way(victim, asking)
            gave_way = True
        return gave_way

    def for_waiting(self, account: Account) -> None:
        """Makes borrowers give way until the head of a tenant below its reserve fits.

        A head that reaches beyond the reserve takes only from who is further above its own.
        """
        scheduler, waiting = self.scheduler, self.scheduler.waiting
        pins, hits = scheduler.predict(waiting.head(account))
        above = max(0.0, _above(account, pins))
        while account.draws(pins, hits) + self.draws > scheduler.ledger.supply:
            victim = self._borrower()
            if victim is None or _above(victim) <= above:
                if above:
                    waiting.park(account, pins, hits, reclaim=False)
                return
            self._give_way(victim, account)
        waiting.try_again(account)
        scheduler.grant(account)

    def _passes_ceiling(self, account: Account) -> bool:
        if account.pinned + self.asked[account] <= account.ceiling:
            return False
        if not account.old_ceilings:
            return True
        pinned = account.pinned
        for request in self.running[account]:
            pins = self.pins.get(request.request_id, 0)
            pinned += pins
            if pins and pinned > account.old_ceilings.get(request.request_id, account.ceiling):
                return True
        return False

    def _borrower(self) -> Account | None:
        """The tenant with running requests that is furthest above its reserve, by its weight."""
        heap = self.borrowers
        while heap:
            above, serial, account = heap[0]
            now = _above(account)
            if now <= 0 or not self.running[account]:
                heappop(heap)
            elif -now != above:  # it has only fallen since
                heapreplace(heap, (-now, serial, account))
            else:
                return account
        return None

    def _give_way(self, account: Account, cause: Account) -> None:
        """Preempts the tenant's request that vLLM would preempt first."""
        request = _newest(self.scheduler, self.running[account])
        self.running[account].remove(request)
        before = account.draws(self.asked[account])
        _preempt(self.scheduler, request, cause)
        self.asked[account] -= self.pins.pop(request.request_id, 0)
        self.draws += account.draws(self.asked[account]) - before


def step_pins(scheduler: Any) -> dict[str, int]:
    """How many blocks each running request pins in the next step, as vLLM will schedule it.

    Follows the running loop of v1/core/sched/scheduler.py.
    """
    tokens = scheduler.max_num_scheduled_tokens
    shares = scheduler.shares.copy() if scheduler.shares is not None else None
    long_prefill = scheduler.long_prefill_tokens()
    found = {}
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
            found[request.request_id] = scheduler.pins(request, computed, new)
    return found


def _for_slot(scheduler: Any, free: int) -> None:
    """Takes a slot from a tenant that has more than its share, for one with less that waits.

    Where there are more tenants than slots, those with less than a slot each have one in turns.
    One that lacks blocks too is parked, or has them reclaimed first if it is below its reserve:
    whoever gives way for them leaves a slot as well.

    Args:
        scheduler: the scheduler.
        free: the slots that are free, though none was at the end of the last step: one of them is
            taken instead, or tiny requests would have them all, ending in the step after.
    """
    waiting = scheduler.waiting
    per_weight = scheduler.max_num_active_reqs / waiting.weight
    running: dict[Account, list[Any]] = {}
    for request in scheduler.running:
        running.setdefault(request.saltwall_holder.account, []).append(request)

    def spare(account: Account) -> tuple[int, float]:
        """Whole slots above the share, of which the first is everybody's, and with fractions."""
        share, slots = per_weight * account.weight, len(running[account])
        return slots - max(1, int(share)), slots - share

    most = max(running, key=spare, default=None)
    whole, fraction = (0, 0.0) if most is None else spare(most)
    above = (account for account in running if spare(account)[1] > 0)
    served = max(above, key=lambda account: account.tokens, default=None)

    def lacks(account: Account) -> float:
        return per_weight * account.weight - account.running

    def entitled(account: Account) -> bool:
        return lacks(account) >= 1 or not (account.running or free > 0)

    heads = waiting.heads(_SLOT_LOOKS, len(running), entitled)
    heads.sort(key=lambda head: head.saltwall_holder.account.slotted)
    for head in heads:
        account = head.saltwall_holder.account
        victim = most
        if free <= 0 and whole < 1 and (lacks(account) < 1 or fraction <= 0):
            if served is None or served.tokens - account.tokens < _TURN_TOKENS / served.weight:
                continue
            victim = served
        if not scheduler.admissible(head):
            continue
        if free <= 0 and victim is not None:
            _preempt(scheduler, _newest(scheduler, running[victim]), account)
        account.slotted = scheduler.current_step
        waiting.put_first(account)
        scheduler.grant(account)
        return


def _newest(scheduler: Any, running: list[Any]) -> Any:
    """The request that vLLM would preempt first."""
    if scheduler.by_priority:
        return max(running, key=lambda request: (request.priority, request.arrival_time))
    return running[-1]


def _preempt(scheduler: Any, request: Any, cause: Account) -> None:
    scheduler.running.remove(request)
    scheduler._preempt_request(request, time.monotonic())
    scheduler.preempted_now.add(request.request_id)
    account = request.saltwall_holder.account
    if account is not cause:
        cause.preemptions_caused += 1
    account.preemptions_suffered += 1
