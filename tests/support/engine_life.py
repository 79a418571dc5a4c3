"""What tenants and an operator can do to a running engine, as a hypothesis state machine."""

from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID

from bare_core import BLOCK
from fake_engine import FakeEngine
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from quota_watch import Watch

from saltwall_engine.ledger import UNLIMITED, Quota, QuotaError
from saltwall_engine.pool import NO_STORE
from saltwall_engine.salt_label import Owner

TENANTS = [UUID(int=i + 1) for i in range(4)]
tenants = st.sampled_from(TENANTS)
numbers = st.integers(0, 40)
quotas = st.builds(
    lambda reserve, more, weight, store: Quota(
        reserve, UNLIMITED if more is None else reserve + more, weight, store
    ),
    st.integers(0, 8),
    st.integers(0, 8) | st.none(),
    st.sampled_from([0.5, 1.0, 1.0, 3.0]),
    st.sampled_from([True, True, True, False]),
)


requests = st.tuples(
    tenants,
    st.integers(0, 2),
    st.integers(1, 6 * BLOCK),
    st.integers(1, 3 * BLOCK),
    st.sampled_from([1, 1, 1, 2, 3]),
    st.sampled_from([True, True, True, False]),
)


class EngineLife(RuleBasedStateMachine):
    """Whatever four tenants send and an operator sets, while the engine runs."""

    make_config: ClassVar[Callable[..., Any]]
    asynchronous: ClassVar[bool]
    seen: ClassVar[Counter[str]]
    longest_wait: ClassVar[list[int]]

    @initialize(
        blocks=st.sampled_from([13, 21, 33]),
        running=st.sampled_from([2, 4, 8]),
        step_tokens=st.sampled_from([64, 128, 512]),
        window=st.sampled_from([None, None, 40]),
        given=st.lists(quotas, min_size=4, max_size=4),
    )
    def start(
        self, blocks: int, running: int, step_tokens: int, window: int | None, given: list[Quota]
    ) -> None:
        config = type(self).make_config(
            asynchronous=self.asynchronous, blocks=blocks, running=running, step_tokens=step_tokens
        )
        self.engine = FakeEngine(config, TENANTS, window)
        self.watch = Watch(self.engine)
        self.owed: dict[str, int] = {}
        for tenant, quota in zip(TENANTS, given, strict=False):
            self.set_quota(tenant, quota)

    def check(self) -> None:
        self.engine.scheduler.check_integrity()

    @rule(requests=st.lists(requests, min_size=1, max_size=6), steps=st.integers(0, 24))
    def submit(self, requests: list[Any], steps: int) -> None:
        """Requests, then steps; prompts of a family share their beginning."""
        for tenant, family, prompt, output, copies, store in requests:
            extra = {} if store else {NO_STORE: 1}
            for _ in range(copies):
                name = self.engine.submit(tenant, [family] * prompt, output, **extra)
                if name is not None:
                    self.owed[name] = self.engine.live[name].max_tokens
        self.check()
        self.run(steps)

    @rule(steps=st.integers(1, 48))
    def run(self, steps: int) -> None:
        for _ in range(steps):
            if not self.engine.idle():
                self.watch.step()

    @rule(picks=st.lists(numbers, min_size=1, max_size=4))
    def abort(self, picks: list[int]) -> None:
        """Clients go away, of requests that wait, run, or are in flight."""
        names = list(self.engine.live)
        chosen = list(dict.fromkeys(names[pick % len(names)] for pick in picks if names))
        self.engine.abort(chosen)
        for name in chosen:
            del self.owed[name]
        self.check()

    @rule(tenant=tenants, quota=quotas)
    def set_quota(self, tenant: UUID, quota: Quota) -> None:
        ledger = self.engine.ledger
        others = sum(a.reserve for t, a in ledger.accounts.items() if t != tenant)
        try:
            self.engine.scheduler.set_quota(tenant, quota)
        except QuotaError:
            assert others + quota.reserve > ledger.total
        else:
            assert others + quota.reserve <= ledger.total
        self.check()

    @rule(tenant=tenants)
    def purge(self, tenant: UUID) -> None:
        left = 1
        while left:
            _, left = self.engine.pool.purge([Owner(tenant, 1)], 60)
        self.check()

    @rule(running=st.booleans())
    def reset(self, running: bool) -> None:
        """vLLM's reset of the prefix cache, with or without preempting everybody."""
        self.engine.scheduler.reset_prefix_cache(reset_running_requests=running)
        self.check()

    @rule(ids=st.sets(st.integers(0, 12), max_size=4))
    def evict_blocks(self, ids: set[int]) -> None:
        self.engine.pool.evict_blocks(ids)
        self.check()

    def teardown(self) -> None:
        """Everything that was not aborted ends, with all its tokens, and nothing stays charged."""
        if not hasattr(self, "owed"):
            return
        engine = self.engine
        self.watch.finish()
        for name, tokens in self.owed.items():
            if engine.finished[name] == "length":
                assert engine.tokens[name] == tokens
                self.seen["finished"] += 1
            else:
                assert engine.finished[name] == "error"
                self.seen["no longer fit"] += 1
        self.seen += self.watch.seen
        self.longest_wait.append(self.watch.longest_wait)
