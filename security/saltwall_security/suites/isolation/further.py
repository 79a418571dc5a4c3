"""Does any further tenant share with another what the first two keep apart?"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

from saltwall_security.check import Check, not_made
from saltwall_security.client import Client
from saltwall_security.suites.isolation.bench import AT_ONCE, Bench, check, sending
from saltwall_security.suites.isolation.trial import Trial, Way

CLAIM = "No further tenant shares a cache with another one, or with the first two"
MOST_PAIRS = 30
"""That are tried: six tenants' all. Of more tenants each is tried with its neighbours at least."""


async def check_further(bench: Bench) -> Sequence[Check]:
    """One plain way for each two tenants, once in each direction."""
    target = bench.audit.target
    count = len(target.tenants)
    if count < 3:
        return not_made("isolation", "G1", {"further": CLAIM}, "There are two tenants only.")
    clients = [bench.audit.client(number) for number in range(count)]
    tried = pairs(count)
    trials: list[Trial] = []
    for start in range(0, len(tried), AT_ONCE):
        group = tried[start : start + AT_ONCE]
        made = (_tried(bench, clients[owner], clients[spy]) for owner, spy in group)
        trials += await asyncio.gather(*made)
    found = check("further", CLAIM, trials)
    told = f"{len(tried)} of {count * (count - 1) - 2} further pairs of {count} tenants were tried."
    return [replace(found, seen=f"{told} {found.seen}")]


def pairs(count: int) -> Sequence[tuple[int, int]]:
    """Owner and spy, by their numbers; neighbours first, and the first two never."""

    def apart(pair: tuple[int, int]) -> int:
        steps = abs(pair[0] - pair[1])
        return min(steps, count - steps)

    every = [pair for pair in permutations(range(count), 2) if set(pair) != {0, 1}]
    return sorted(every, key=apart)[: max(MOST_PAIRS, 2 * count)]


async def _tried(bench: Bench, owner: Client, spy: Client) -> Trial:
    way = Way(
        f"{owner.tenant.name}, then {spy.tenant.name}",
        sending(owner, bench.route.ask),
        sending(spy, bench.route.ask),
        bench.floor,
        brief=True,
    )
    (trial,) = await replace(bench, victim=owner, spy=spy).trials([way])
    return trial
