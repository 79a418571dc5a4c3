"""Watches a running engine for anything that the quota contract forbids."""

from collections import Counter
from typing import Any

from fake_engine import FakeEngine

from saltwall_engine.pool import OwnedBlockPool


class WatchedPool(OwnedBlockPool):
    """A pool that checks after each allocation whose idle blocks it took."""

    seen: Counter[str]

    def get_new_blocks(self, num_blocks: int) -> list[Any]:
        """As the pool's.

        Raises:
            AssertionError: it took what it may not take.
        """
        accounts = list(self.ledger.accounts.values())
        before = [(account, account.idle, account.held) for account in accounts]
        blocks = super().get_new_blocks(num_blocks)
        acting: Any = self._holder
        for account, idle, held in before:
            lost = idle - account.idle
            if not lost:
                continue
            assert lost > 0
            assert account.held >= account.reserve, f"{account.tenant} lost {lost} of its reserve"
            if account is acting.account:
                self.seen["own idle blocks recycled"] += lost
            else:
                assert account.held == held - lost
                self.seen["others' idle blocks taken"] += lost
        return blocks


class Watch:
    """Everything that must hold at each step, and what was seen of what could go wrong."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self.seen: Counter[str] = Counter()
        self.longest_wait = 0
        """The most steps for which a tenant's head, within its reserve, was not admitted."""
        self._entitled: Counter[Any] = Counter()
        engine.pool.__class__ = WatchedPool
        engine.pool.seen = self.seen
        self._preempt = engine.scheduler._preempt_request
        engine.scheduler._preempt_request = self._preempted
        self._pending: tuple[Any, bool, int] | None = None
        self._gave_way: set[str] = set()

    def _caused(self) -> int:
        return sum(a.preemptions_caused for a in self.engine.ledger.accounts.values())

    def _preempted(self, request: Any, *args: Any, **kwargs: Any) -> None:
        self._settle()
        scheduler, account = self.engine.scheduler, request.saltwall_holder.account
        assert not scheduler._scheduling, "stock preempts in its own loop"
        slots = scheduler.max_num_active_reqs * account.weight / scheduler.waiting.weight
        borrows = account.pinned > account.reserve or account.running > slots
        self._preempt(request, *args, **kwargs)
        self._gave_way.add(request.request_id)
        self.seen["preemptions"] += 1
        self._pending = account, borrows, self._caused()

    def _settle(self) -> None:
        """Looks at the last preemption, once its cause is counted."""
        if self._pending is None:
            return
        account, borrows, caused = self._pending
        foreign = self._caused() > caused
        self.seen["preemptions for others"] += foreign
        assert borrows or not foreign, f"{account.tenant} lost a request within its reserve"
        self._pending = None

    def step(self) -> Any:
        """One turn of the engine's loop, watched.

        Raises:
            AssertionError: the contract was broken.
        """
        engine = self.engine
        entitled = self._heads_within_reserve()
        self._gave_way.clear()
        scheduled = engine.step()
        self._settle()
        engine.scheduler.check_integrity()
        assert not engine.scheduler.alarms, engine.scheduler.alarms
        assert not engine.pool.ownership_mismatches
        for account in engine.ledger.accounts.values():
            self._check_ceiling(account)
        if scheduled is not None:
            self._check_admissions(scheduled)
            self._check_waits(entitled, scheduled)
        return scheduled

    def _check_ceiling(self, account: Any) -> None:
        old = max(account.old_ceilings.values(), default=0)
        assert account.pinned <= max(account.ceiling, old)
        assert account.held <= max(account.ceiling, account.pinned, old)

    def _check_admissions(self, scheduled: Any) -> None:
        """Nothing is admitted above a ceiling of today, or in the step in which it gave way."""
        assert not self._gave_way & scheduled.num_scheduled_tokens.keys()
        for name in self.engine.first_scheduled(scheduled):
            account = self.engine.live[name].saltwall_holder.account
            if name not in account.old_ceilings:
                assert account.pinned <= account.ceiling
                self.seen["admissions"] += 1

    def _heads_within_reserve(self) -> dict[Any, str]:
        """By tenant, the waiting request that its reserve and its share of slots entitle it to."""
        scheduler = self.engine.scheduler
        accounts = self.engine.ledger.accounts.values()
        slots = scheduler.max_num_active_reqs
        share = {a: slots * a.weight / max(scheduler.waiting.weight, 1e-9) for a in accounts}
        entitled = {a: max(1, int(share[a])) for a in accounts if a.live}
        if sum(entitled.values()) > slots:  # then they take turns
            return {}
        heads = {}
        for account in accounts:
            if not account.waiting or account.running + 1 > entitled[account]:
                continue
            head = scheduler.waiting.head(account)
            pins, _ = scheduler.predict(head)
            scheduler._hit = None
            if account.pinned + pins <= account.reserve:
                heads[account] = head.request_id
        return heads

    def _check_waits(self, entitled: dict[Any, str], scheduled: Any) -> None:
        scheduler = self.engine.scheduler
        spent = scheduled.total_num_scheduled_tokens
        computes = spent >= scheduler.max_num_scheduled_tokens or (
            scheduler.shares is not None and scheduler._prefill_tokens > 0
        )
        for account, name in entitled.items():
            if name in scheduled.num_scheduled_tokens:
                del self._entitled[account, name]
            elif not computes:  # else it waits for tokens, which go round by other counters
                self._entitled[account, name] += 1
        still = set(entitled.items())
        for key in [key for key in self._entitled if key not in still]:
            del self._entitled[key]
        self.longest_wait = max(self.longest_wait, *self._entitled.values(), 0)

    def finish(self, most: int = 3000) -> None:
        """Runs until nothing is left, and looks at what remains.

        Args:
            most: steps, besides 100 for each request.

        Raises:
            AssertionError: something does not end, or stays charged.
        """
        engine = self.engine
        for _ in range(most + 100 * len(engine.live)):
            if engine.idle():
                break
            self.step()
        assert engine.idle(), f"{list(engine.live)} do not end"
        assert not engine.live
        for account in engine.ledger.accounts.values():
            assert account.pinned == account.live == account.waiting == 0
            assert not account.old_ceilings
            assert account.held <= account.ceiling
        assert engine.ledger.free + engine.ledger.idle == engine.ledger.total
        assert engine.scheduler.reset_prefix_cache()
        engine.scheduler.check_integrity()
        assert engine.ledger.free == engine.ledger.total
