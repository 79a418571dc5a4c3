"""A pytest plugin that gives vLLM's tests Saltwall's scheduler, manager and pool for vLLM's own.

Wherever a test builds a `Scheduler` or `AsyncScheduler`, it gets the class that `scheduler_class`
would choose, which upgrades its own manager and pool; a `KVCacheManager` or `BlockPool` that a test
builds itself is upgraded as the scheduler would. Every request is one tenant's, whose quota is the
default one. Boot's refusals are lifted here, not in the product: vLLM's tests use connectors, no
prefix caching, other hashes. Block hashes stay stock's, since the tests compute them themselves.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import SchedulerInterface
from vllm.v1.core.sched.scheduler import Scheduler

from saltwall_engine import boot, kv_cache_manager, pool, scheduler
from saltwall_engine.salt_label import Grant, Owner
from saltwall_tenants.wire import TicketRoot

GRANT = Grant(Owner(UUID(int=0xC0), 1), salt=b"\0" * 32)
OURS = {Scheduler: scheduler.TenantScheduler, AsyncScheduler: scheduler.TenantAsyncScheduler}

counts = Counter({"schedulers": 0, "managers": 0, "pools": 0})


def wrap(cls: type, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
    """Replaces a method by what `make` makes of it."""
    method = getattr(cls, name)
    setattr(cls, name, wraps(method)(make(method)))


def _by_a_test() -> bool:
    """Whether a test module, not vLLM, called the constructor that calls this."""
    name: str = sys._getframe(2).f_globals["__name__"]
    return name.partition(".")[0] == "tests"


def _act(owned: pool.OwnedBlockPool) -> None:
    """Tests call pools and coordinators directly: what they do there, the tenant does."""
    owned.act_for(owned.holder(GRANT.owner))


def _new_scheduler(cls: type[Scheduler], *args: Any, **kwargs: Any) -> Scheduler:
    return object.__new__(OURS.get(cls, cls))


def _upgrading_scheduler(init: Any) -> Any:
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        manager = self.kv_cache_manager
        assert isinstance(manager, kv_cache_manager.TenantKVCacheManager)
        assert isinstance(manager.block_pool, pool.OwnedBlockPool)
        self.admission.replace({GRANT.owner.tenant: frozenset({GRANT.owner.generation})})
        self.admission.renew(1e9)
        _act(manager.block_pool)
        counts.update(schedulers=1, managers=1, pools=1)

    return wrapped


def _upgrading_manager(init: Any) -> Any:
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if type(self) is KVCacheManager and _by_a_test():
            kv_cache_manager.upgrade(self, lambda owner: True)
            _act(self.block_pool)
            counts.update(managers=1, pools=1)

    return wrapped


def _upgrading_pool(init: Any) -> Any:
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if type(self) is BlockPool and _by_a_test():
            _act(pool.own(self, lambda owner: True))
            counts.update(pools=1)

    return wrapped


def _for_nobody(method: Any) -> Any:
    """Inside the scheduler, only the product says for whom it acts."""

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        owned = getattr(getattr(self, "kv_cache_manager", None), "block_pool", None)
        if not isinstance(owned, pool.OwnedBlockPool):  # still in its constructor, or a mock
            return method(self, *args, **kwargs)
        before = owned.act_for(None)
        try:
            return method(self, *args, **kwargs)
        finally:
            owned.act_for(before)

    return wrapped


def pytest_configure() -> None:
    """Puts Saltwall's classes in the place of vLLM's."""
    for name, module in list(sys.modules.items()):
        if name.startswith("saltwall_engine.") and hasattr(module, "grant_of"):
            module.grant_of = lambda cache_salt: GRANT
    boot.config_problems = lambda config, version: []
    boot.refuse = lambda problems: None
    keys = TicketRoot(b"conformance" + bytes(21)).engine_keys("conformance")
    scheduler.read_keys = lambda: keys
    for cls in OURS.values():
        for name in SchedulerInterface.__abstractmethods__:
            wrap(cls, name, _for_nobody)
        wrap(cls, "__init__", _upgrading_scheduler)
    Scheduler.__new__ = staticmethod(_new_scheduler)
    wrap(KVCacheManager, "__init__", _upgrading_manager)
    wrap(BlockPool, "__init__", _upgrading_pool)


def pytest_sessionfinish() -> None:
    """Writes how much was forced in.

    Raises:
        UsageError: something never was, so the session has proved nothing.
    """
    Path("forced.json").write_text(json.dumps(counts))
    missing = [what for what, number in counts.items() if number == 0]
    if missing:
        raise pytest.UsageError(f"Saltwall's {', '.join(missing)} never took part")
