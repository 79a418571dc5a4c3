"""What a stranger sees of a prompt some time after its owner has sent it.

A cache of several tiers may divide the first of them alone, and fill the others in its own time,
and in larger chunks.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from saltwall_security.suites.isolation.bench import RETRIES, Bench, sending
from saltwall_security.suites.isolation.trial import Trial, Way, counted, sent

LATER_S = 5.0
"""The least time between the owner's first request and the stranger's."""


@dataclass(frozen=True)
class Early:
    """Prompts that one tenant has sent, and nobody else.

    Args:
        ways: they have the prompts.
        since: when the last of them was answered (`time.monotonic()`).
    """

    bench: Bench
    ways: Sequence[Way]
    since: float

    @classmethod
    async def warmed(cls, bench: Bench) -> "Early":
        """Both tenants send short ones and long ones."""
        ways = []
        for said, roles in (("", bench), ("swapped, ", bench.swapped())):
            for length, write in (("short", bench.fresh), ("long", bench.long)):
                name = f"{said}{length}, {LATER_S:.0f} s later or more"
                ways.append(await _warmed(roles, name, write))
        return cls(bench, ways, time.monotonic())

    async def trials(self) -> Sequence[Trial]:
        """Its owner sends one of them again, which may have been evicted; then the spy does.

        So there is something to see where tenants share the first tier, and where they share one
        that was filled since.
        """
        if self.bench.audit.left_s > 0:
            await asyncio.sleep(self.since + LATER_S - time.monotonic())
        return await self.bench.trials(self.ways)


async def _warmed(bench: Bench, name: str, write: Callable[[], str]) -> Way:
    """As many prompts as the trial may need; a leak takes two."""
    owner, prompts = sending(bench.victim, bench.route.ask), list[str]()
    for _ in range(1 + RETRIES):
        prompt = write()
        answer = await sent(owner, prompt)
        if answer is not None and counted(answer):
            prompts.append(prompt)
    return Way(
        name,
        owner,
        sending(bench.spy, bench.route.ask),
        bench.floor,
        brief=True,
        prompt=lambda: prompts.pop() if prompts else "",
    )
