"""Suites that examine the scheduler class in a process of its own, without an engine."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from saltwall_security.bench.process import Benches, BenchFailed, Examination
from saltwall_security.suites import collision, scheduler
from saltwall_security.target import Target, Tenant

SUITES = ("scheduler", "collision")
SCHEDULER = "saltwall_engine.scheduler:scheduler_class"
NOBODY = "http://127.0.0.1:9/v1"
"""Nothing answers there, and nothing is asked."""


def target() -> Target:
    """The scheduler, and no deployment."""
    return Target(NOBODY, (Tenant("a"), Tenant("b")), model="demo", scheduler=SCHEDULER)


class _Kept(Examination):
    """One that outlives who asks: a question that is given up is answered before the next."""

    def __init__(self, examination: Examination) -> None:
        self._examination = examination
        self.broken = False

    async def version(self) -> str:
        return await self._examination.version()

    async def ask(self, task: str, seconds: float, **arguments: Any) -> Any:
        return await asyncio.shield(asyncio.create_task(self._ask(task, seconds, arguments)))

    async def _ask(self, task: str, seconds: float, arguments: Mapping[str, Any]) -> Any:
        try:
            return await self._examination.ask(task, seconds, **arguments)
        except BenchFailed:
            self.broken = True
            raise


class Workshop:
    """The processes in which schedulers are examined, kept from one run of a suite to the next.

    Importing vLLM takes longer than most attacks. Defects are switched on and off in it meanwhile;
    each attack builds a scheduler of its own.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[tuple[str, str], ...], dict[str, _Kept]] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Workshop":
        scheduler.Benches = collision.Benches = self.benches  # type: ignore[assignment,misc]
        return self

    async def __aexit__(self, *_: Any) -> None:
        scheduler.Benches = collision.Benches = Benches  # type: ignore[misc]
        await self._stack.aclose()

    @asynccontextmanager
    async def benches(
        self, schedulers: Mapping[str, str], seed: str
    ) -> AsyncIterator[Mapping[str, Examination]]:
        """Stands for `Benches`; starts anew what an attack has ended."""
        key = tuple(sorted(schedulers.items()))
        kept = self._open.get(key)
        if kept is None or any(each.broken for each in kept.values()):
            started = await self._stack.enter_async_context(Benches(schedulers, seed))
            kept = self._open[key] = {name: _Kept(each) for name, each in started.items()}
        yield kept
