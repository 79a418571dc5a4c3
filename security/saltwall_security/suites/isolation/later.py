"""What a stranger sees of a prompt some time after its owner has sent it.

A cache of several tiers may divide the first of them alone, and fill the others in its own time.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from saltwall_security.suites.isolation.bench import REPEATS, RETRIES, Bench, sending
from saltwall_security.suites.isolation.trial import Trial, Way, counted, sent

LATER_S = 5.0
"""The least time between the owner's first request and the stranger's."""


@dataclass(frozen=True)
class Early:
    """Prompts that the victim has sent, and nobody else.

    Args:
        since: when the last of them was answered (`time.monotonic()`).
    """

    bench: Bench
    prompts: list[str]
    since: float

    @classmethod
    async def warmed(cls, bench: Bench) -> "Early":
        """Sends as many as the trial may need."""
        ask, prompts = sending(bench.victim, bench.route.ask), []
        for _ in range(1 + RETRIES + REPEATS):
            prompt = bench.fresh()
            answer = await sent(ask, prompt)
            if answer is not None and counted(answer):
                prompts.append(prompt)
        return cls(bench, prompts, time.monotonic())

    async def trials(self) -> Sequence[Trial]:
        """The victim sends one of them again, which may have been evicted; then the spy does.

        So there is something to see where tenants share the first tier, and where they share one
        that was filled since.
        """
        bench, ask = self.bench, self.bench.route.ask
        if bench.audit.left_s > 0:
            await asyncio.sleep(self.since + LATER_S - time.monotonic())
        way = Way(
            f"{LATER_S:.0f} s later or more",
            sending(bench.victim, ask),
            sending(bench.spy, ask),
            bench.floor,
            brief=True,
            prompt=lambda: self.prompts.pop() if self.prompts else "",
        )
        return await bench.trials([way])
