"""G4, G5, G6: what a flood does to others: their cached blocks, their hits, their waiting.

A victim with a long cached prefix asks about it while attackers keep requests in flight, as in
vLLM's automatic prefix caching, where the least recently used block goes first, whoever's it is.
Hits are counted, not timed, so that other load on the machine changes no verdict about them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

from saltwall_security.check import Check
from saltwall_security.client import Client
from saltwall_security.prober import Prober, Refused
from saltwall_security.suite import Audit, Suite
from saltwall_security.suites.eviction.aftermath import remains_check
from saltwall_security.suites.eviction.cast import Cast, casting
from saltwall_security.suites.eviction.hit_rate import hit_rate_check
from saltwall_security.suites.eviction.interference import Twins, own_view, strict_check
from saltwall_security.suites.eviction.replay import Replay
from saltwall_security.suites.eviction.scale import Scale, measure
from saltwall_security.suites.eviction.siege import Siege
from saltwall_security.suites.eviction.starvation import starvation_check
from saltwall_security.suites.eviction.strategies import STRATEGIES, Strategy
from saltwall_security.suites.eviction.trial import Trial
from saltwall_security.suites.eviction.untested import not_reached, not_shown
from saltwall_security.suites.eviction.view import Spy, View

END_S, END_PART = 6.0, 0.2
"""For the victim alone after the last attack, and to delete tenants; at most a part of it all."""
FIRST_S = 90.0
"""The first attack may take this on a busy machine, whatever the budget; it ends when it has seen
enough."""
SHORT_SEQUENCE, LONG_SEQUENCE = 12, 30
LONG_S = 120.0
"""A suite with so much time replays a long sequence beside every attack."""
VIEW_COST, VIEW_ROUNDS = 5, 2
"""So many times the time to fill the cache is what the attacker's own view takes."""


async def run(audit: Audit, strategies: Sequence[Strategy] = STRATEGIES) -> AsyncIterator[Check]:
    """One attack after the other, the strongest first, as long as there is time."""
    began = time.monotonic()
    probe = Prober()
    audit.say("measuring the pool and its blocks")
    scale = await measure(audit, probe)
    trials: list[Trial] = []
    twins: list[Twins] = []
    is_long = audit.seconds >= LONG_S
    if not scale.repeat:
        yield not_shown(scale.repeat)
    async with casting(audit, scale) as cast:
        siege = Siege(audit, probe, cast, scale)
        chosen = _possible(strategies, audit)
        for number, strategy in enumerate(chosen):
            left = audit.left_s - min(END_S, END_PART * audit.seconds)
            if trials and left < trials[0].seconds:
                break
            audit.say(f"attack: {strategy.title}")
            operator = audit.target.operator
            if scale.repeat and operator and cast.strict and (not trials or is_long):
                twins.append(_twins(audit, probe, scale, cast.strict, cast.exposed, strategy))
                await asyncio.gather(*(replay.record(operator) for replay in twins[-1].both))
            now = time.monotonic()
            enough = now + left / (len(chosen) - number)
            least = 0.0 if trials else FIRST_S
            beside = [r for pair in twins if pair.strategy is strategy for r in pair.both]
            trial = await siege.attack(strategy, now + max(left, least), enough, beside)
            trials.append(trial)
            if scale.repeat:
                yield hit_rate_check(trial, cast.promise, scale, began)
        yield starvation_check(trials)
        if scale.repeat:
            yield strict_check(twins)
            yield own_view(trials, await _view(audit, probe, scale, cast))
    yield remains_check(trials)
    if len(trials) < len(chosen):
        yield not_reached(chosen[len(trials) :])


def _possible(strategies: Sequence[Strategy], audit: Audit) -> Sequence[Strategy]:
    """Those that there are means for."""
    many = audit.target.operator is not None or len(audit.target.tenants) > 2
    return [strategy for strategy in strategies if many or not strategy.keys]


def _twins(
    audit: Audit, probe: Prober, scale: Scale, strict: Client, elastic: Client, strategy: Strategy
) -> Twins:
    length = LONG_SEQUENCE if audit.seconds >= LONG_S else SHORT_SEQUENCE
    one, other = (Replay(audit, probe, scale, who, length) for who in (strict, elastic))
    return Twins(strategy, one, other)


async def _view(audit: Audit, probe: Prober, scale: Scale, cast: Cast) -> View | None:
    """What the attacker sees of the victim; None if there is no time for it."""
    spy = Spy(audit, probe, scale, cast.attacker)
    if audit.left_s < VIEW_COST * spy.cost_s:
        return None
    audit.say("the attacker's own view")
    try:
        return await spy.watch(cast.victim, VIEW_ROUNDS)
    except Refused:
        return None


SUITE = Suite(
    "eviction",
    "What a flood does to others: evicted blocks, lost hits, waiting",
    ("G4", "G5", "G6", "G11"),
    run,
    share=4.0,
    least_s=20.0,
)
