"""What a purged tenant computed is overwritten: once, in time, and nothing else with it."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from bare_core import ACME, BLOCK, GLOBEX, Core, grant
from engine_life import TENANTS, EngineLife, quotas, tenants
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from properties import effort, run_machine, seeds

from saltwall_engine.ledger import Quota
from saltwall_engine.salt_label import Owner

PROMPT = list(range(BLOCK * 6 + 3))


@pytest.fixture
async def core(make_core: Any) -> Core:
    """An engine core that erases, over a memory that remembers who wrote what."""
    made: Core = make_core()
    await made.call_utility_async("saltwall_attest")
    made.memory.attach(made.scheduler)
    made.memory.overwritten.clear()
    return made


async def revoke(core: Core, tenant: UUID = ACME) -> None:
    """Suspends a tenant, to the end of the purge."""
    lost = await core.call_utility_async("saltwall_authorise", [[tenant.hex, []]])
    await purge(core, lost)


async def purge(core: Core, owners: list[Any]) -> None:
    """All slices of one purge."""
    left = 1
    while left:
        _, left = await core.call_utility_async("saltwall_purge", owners)


# Which blocks.


async def test_what_a_tenant_had_cached_is_overwritten_once(core: Core) -> None:
    """Its cached blocks and the end of its prompt, which never was; a second purge finds none."""
    core.serve(core.request(PROMPT, grant(ACME)))
    blocks = core.memory.blocks_of(Owner(ACME, 1))
    assert len(blocks) == 7
    await revoke(core)
    assert sorted(core.memory.overwritten) == sorted(blocks)
    await purge(core, [[ACME.hex, 1]])
    assert len(core.memory.overwritten) == 7


async def test_what_others_have_cached_stays(core: Core) -> None:
    """The purge of one tenant overwrites no block that another can hit."""
    for tenant in (ACME, GLOBEX):
        core.serve(core.request(PROMPT, grant(tenant)))
    await revoke(core)
    assert core.memory.blocks_of(Owner(ACME, 1)) == set()
    assert core.serve(core.request(PROMPT, grant(GLOBEX))) == BLOCK * 6


async def test_running_requests_of_a_revoked_tenant_leave_nothing(core: Core) -> None:
    """They are aborted, and what they computed is overwritten."""
    core.scheduler.add_request(core.request(PROMPT, grant(ACME), max_tokens=50))
    core.step()
    await revoke(core)
    assert core.memory.blocks_of(Owner(ACME, 1)) == set()


async def test_blocks_in_use_are_overwritten_when_they_are_freed(core: Core) -> None:
    """A purge without a revocation lets requests run on, and overwrites after them."""
    core.scheduler.add_request(core.request(PROMPT, grant(ACME), max_tokens=3))
    core.step()
    blocks = core.memory.blocks_of(Owner(ACME, 1))
    await purge(core, [[ACME.hex, 1]])
    assert core.memory.overwritten == []
    while core.scheduler.has_requests():
        core.step()
    assert sorted(core.memory.overwritten) == sorted(blocks)


async def test_what_has_passed_to_another_is_overwritten_in_time(core: Core) -> None:
    """A block that another tenant has taken and not filled loses what is beneath it, once freed."""
    core.serve(core.request(PROMPT[: BLOCK - 1], grant(ACME)))
    core.scheduler.add_request(core.request(PROMPT[:3], grant(GLOBEX), max_tokens=2))
    core.step()
    assert core.memory.blocks_of(Owner(ACME, 1)) == core.memory.blocks_of(Owner(GLOBEX, 1))
    await revoke(core)
    while core.scheduler.has_requests():
        core.step()
    assert core.memory.blocks_of(Owner(ACME, 1)) == set()


async def test_blocks_taken_during_a_purge_are_overwritten_before_the_step(core: Core) -> None:
    """From the revocation on nobody computes on top of what the tenant has left."""
    core.serve(core.request(PROMPT, grant(ACME)))
    left = core.memory.blocks_of(Owner(ACME, 1))
    lost = await core.call_utility_async("saltwall_authorise", [[ACME.hex, []]])
    core.scheduler.add_request(core.request(list(range(900)), grant(GLOBEX), max_tokens=2))
    core.step()
    taken = core.memory.blocks_of(Owner(GLOBEX, 1))
    assert taken & left
    assert taken & left <= set(core.memory.overwritten)
    await purge(core, lost)
    assert core.memory.blocks_of(Owner(ACME, 1)) == set()
    assert len(core.memory.overwritten) == len(set(core.memory.overwritten))


async def test_a_purge_goes_in_batches(core: Core) -> None:
    """No slice overwrites more than a batch."""
    core.serve(core.request(PROMPT, grant(ACME)))
    core.scheduler.kv_cache_manager.block_pool.remains.batch = 3
    done = []
    left = 1
    while left:
        before = len(core.memory.overwritten)
        _, left = await core.call_utility_async("saltwall_purge", [[ACME.hex, 1]])
        done.append(len(core.memory.overwritten) - before)
    assert done == [3, 3, 1]


# When it is on, and what it says.


async def test_it_can_be_turned_off(make_core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With SALTWALL_ZEROIZE=0 nothing is ever sent to the workers."""
    monkeypatch.setenv("SALTWALL_ZEROIZE", "0")
    core = make_core()
    await core.call_utility_async("saltwall_attest")
    core.serve(core.request(PROMPT, grant(ACME)))
    await revoke(core)
    assert core.memory.overwritten == []
    usage = await core.call_utility_async("saltwall_usage", 0, 10)
    assert usage["erasure"] == {"on": False, "erased": 0, "in_use": 0}


async def test_a_purge_has_ended_when_the_workers_have_answered(
    core: Core, engine_keys: Any
) -> None:
    """The API process says that a purge is done once memory has been overwritten."""
    from saltwall_engine.api_state import ApiState

    core.serve(core.request(PROMPT, grant(ACME)))
    await ApiState(engine_keys, core).purge([[ACME.hex, 1]])
    usage = await core.call_utility_async("saltwall_usage", 0, 10)
    assert usage["erasure"] == {"on": True, "erased": 7, "in_use": 0}


async def test_while_a_step_runs_nobody_waits_for_the_workers(core: Core) -> None:
    """The scheduler's thread asks whether an answer has come, and goes on."""
    core.serve(core.request(PROMPT, grant(ACME)))
    core.memory.holds_back = []
    core.scheduler.add_request(core.request(PROMPT, grant(GLOBEX), max_tokens=9))
    core.step()
    await revoke(core)
    assert await core.call_utility_async("saltwall_erasing") > 0
    for answer in core.memory.holds_back:
        answer.set_result([None])
    assert await core.call_utility_async("saltwall_erasing") == 0


async def test_a_worker_that_cannot_is_an_alarm(core: Core) -> None:
    """Blocks that could not be overwritten are counted, and nobody is told that they were."""
    core.serve(core.request(PROMPT, grant(ACME)))
    core.memory.holds_back = []
    await revoke(core)
    core.memory.holds_back[0].set_exception(RuntimeError("Worker failed"))
    assert await core.call_utility_async("saltwall_erasing") == 0
    usage = await core.call_utility_async("saltwall_usage", 0, 10)
    assert (usage["erasure"]["erased"], usage["alarms"]["not_erased"]) == (0, 7)


async def test_an_engine_that_cannot_does_not_serve(make_core: Any) -> None:
    """Whether the workers' memory can be overwritten is tried before the first request."""
    from saltwall_engine.errors import BootRefused

    core = make_core()
    core.memory.fails = True
    with pytest.raises(BootRefused, match="SALTWALL_ZEROIZE=0"):
        await core.call_utility_async("saltwall_attest")


def test_a_setting_that_is_neither_on_nor_off_is_refused(
    make_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A typo does not turn erasure off."""
    from saltwall_engine import erasure
    from saltwall_engine.errors import BootRefused

    monkeypatch.setenv("SALTWALL_ZEROIZE", "off")
    with pytest.raises(BootRefused, match="SALTWALL_ZEROIZE is 'off'"):
        erasure.problems(make_config())


def test_an_executor_without_order_is_refused(
    make_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overwriting that could come after the block's next use would destroy another's cache."""
    from vllm.v1.executor.abstract import Executor

    from saltwall_engine import erasure

    class Elsewhere(Executor):
        pass

    config = make_config()
    assert erasure.problems(config) == []
    config.parallel_config.distributed_executor_backend = Elsewhere
    (problem,) = erasure.problems(config)
    assert "--distributed-executor-backend" in problem
    monkeypatch.setenv("SALTWALL_ZEROIZE", "0")
    assert erasure.problems(config) == []


# What is overwritten of a tensor.


def layouts() -> dict[str, list[Any]]:
    """KV caches of two layers and six blocks, as vLLM's attention backends lay them out."""
    import torch

    shared = torch.ones(6, 2, 2, 8, 4)
    heads_first = torch.ones(2, 6, 8, 4).transpose(0, 1)
    return {
        "an allocation a layer": [torch.ones(6, 2, 8, 4), torch.ones(6, 2, 8, 4)],
        "layers within a block": [shared[:, 0], shared[:, 1]],
        "blocks within a head": [heads_first],
        "several kernel blocks a block": [torch.ones(12, 2, 4, 4), torch.ones(12, 2, 4, 4)],
        "one layer's cache used by two": [heads_first, heads_first],
        "bytes": [torch.ones(6, 2, 8, 3, dtype=torch.float8_e4m3fn)],
        "bytes apart": [torch.ones(2, 6, 8, 3).to(torch.float8_e4m3fn).transpose(0, 1)],
    }


@pytest.mark.parametrize("name", layouts())
def test_the_named_blocks_are_zero_and_no_other(name: str) -> None:
    """Whatever the layout, on any device: the same operations run on all of them."""
    from saltwall_engine.erasure import overwrite

    caches = layouts()[name]
    config = SimpleNamespace(num_blocks=6)
    runner = SimpleNamespace(kv_caches=caches, kv_cache_config=config)
    overwrite(SimpleNamespace(model_runner=runner), [4, 1])
    for each in caches:
        for at, block in enumerate(each.float().unflatten(0, (6, -1))):
            assert bool((block == (at not in (1, 4))).all()), at


# Whatever tenants and operators do.


class Erasing(EngineLife):
    """Lives in which tenants lose their salts, over a memory that tells who wrote what."""

    lost: list[Any]

    @initialize(
        blocks=st.sampled_from([13, 21, 33]),
        running=st.sampled_from([2, 4, 8]),
        step_tokens=st.sampled_from([64, 128, 512]),
        window=st.sampled_from([None, None, 40]),
        batch=st.sampled_from([2, 5, 100]),
        given=st.lists(quotas, min_size=4, max_size=4),
    )
    def start(self, batch: int, given: list[Quota], **shape: Any) -> None:
        super().start(given=given, **shape)
        self.core = self.engine.core
        self.generation = dict.fromkeys(TENANTS, 1)
        self.lost = []
        self.memory = self.core.memory
        self.memory.attach(self.engine.scheduler)
        self.call("saltwall_attest")
        self.engine.pool.remains.batch = batch
        submit = self.engine.submit
        self.engine.submit = lambda tenant, *args, **extra: submit(  # type: ignore[method-assign]
            tenant, *args, generation=self.generation[tenant], **extra
        )

    def call(self, name: str, *args: Any) -> Any:
        from saltwall_engine import engine_core

        return getattr(engine_core, name)(self.core, *args)

    @rule(tenant=tenants)
    def revoke(self, tenant: UUID) -> None:
        """The tenant has a new salt, and the old one's grace is over."""
        self.generation[tenant] += 1
        self.core.refused.clear()
        self.lost += self.call("saltwall_authorise", [[tenant.hex, [self.generation[tenant]]]])
        for name in self.core.refused:
            self.engine.live.pop(name, None)
            self.owed.pop(name, None)
        self.check()

    @precondition(lambda self: getattr(self, "lost", None))
    @rule()
    def slice_of_a_purge(self) -> None:
        _, left = self.call("saltwall_purge", self.lost)
        if not left:
            self.gone(self.lost)
            self.lost = []
        self.check()

    @rule(tenant=tenants)
    def purge(self, tenant: UUID) -> None:
        owners = self.call("saltwall_owners", tenant.hex)
        left = 1
        while left:
            _, left = self.call("saltwall_purge", owners)
        self.check()

    def gone(self, lost: list[Any]) -> None:
        """What is left of these owners is in blocks that somebody else uses."""
        remains = self.engine.pool.remains
        for tenant, generation in lost:
            left = self.memory.blocks_of(Owner(UUID(hex=tenant), generation))
            assert left <= remains.when_freed
            assert all(self.engine.pool.blocks[at].ref_cnt for at in left)

    def teardown(self) -> None:
        """Once everything has ended nothing is left of anybody who was purged."""
        if not hasattr(self, "lost"):
            return
        while self.lost:
            self.slice_of_a_purge()
        super().teardown()
        while not self.engine.idle():
            self.engine.step()
        assert not self.engine.pool.remains.due
        assert not self.engine.pool.remains.when_freed
        for tenant, generation in self.generation.items():
            for old in range(1, generation):
                assert not self.memory.blocks_of(Owner(tenant, old))


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("number", seeds(2, 20))
def test_nothing_is_left_and_nothing_else_is_lost(
    make_config: Callable[..., Any], asynchronous: bool, number: int
) -> None:
    """Every request reads what it or its tenant wrote, and of revoked salts nothing remains."""

    machine: Any = Erasing
    machine.make_config = staticmethod(cache(make_config))
    machine.asynchronous = asynchronous
    machine.seen, machine.longest_wait = Counter(), []
    run_machine(machine, number, effort(20, 300))
