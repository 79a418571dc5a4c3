"""G2: whether a tenant can tell by the clock what another has cached.

As in "Auditing Prompt Caching in Language Model APIs" (ICML 2025): long random prompts, of which
some have just been sent by somebody else. The control is a tenant's own cached prompts: the same
test must see that they are faster, or its silence means nothing. What another has cached must not
come later either: a cache that finds it first, and then that it is not for whoever asks, tells.
"""

from collections.abc import AsyncIterator

import numpy as np

from saltwall_security.check import Check
from saltwall_security.prober import Prober, Refused
from saltwall_security.stats.holm import holm
from saltwall_security.stats.separation import Separation, separation
from saltwall_security.suite import Audit, Suite
from saltwall_security.suites.timing.comparison import ALPHA, PAIRS, compare
from saltwall_security.suites.timing.findings import channel_check, first_token_check
from saltwall_security.suites.timing.length import choose_length
from saltwall_security.suites.timing.load import PART_OF_TIME, Channel, Load, measure_load
from saltwall_security.suites.timing.samples import Sampler

SAFETY = 0.65
"""Of the time for samples, what they are planned to take."""
GAPS = "What another tenant's prompt costs does not show between the tokens of a generation"
QUEUE = "What another tenant's prompt costs does not show in how long a short prompt waits"


async def run(audit: Audit) -> AsyncIterator[Check]:
    """The cache's timing channel, then those of load; they share one error rate."""
    rng = np.random.default_rng(audit.rng.getrandbits(64))
    probe = Prober()
    kept_s = PART_OF_TIME * audit.seconds
    length = await choose_length(audit, probe, PAIRS, SAFETY * (audit.left_s - kept_s))
    sampler = Sampler(audit, probe, length)
    cache = await compare(sampler, kept_s, rng)

    load, why = Load(), "No time was left for it."
    try:
        await measure_load(audit, probe, length.words, load)
    except Refused as refusal:
        why = str(refusal)
    gaps, queue = _seen(load.gaps, rng), _seen(load.queue, rng)
    p = {"sooner": cache.sooner_p, "later": cache.later_p}
    p |= {name: seen.p for name, seen in (("gaps", gaps), ("queue", queue)) if seen}
    p = holm(p)

    leak_p = min(p["sooner"], p["later"])
    yield first_token_check(sampler, cache, leak_p, length.words, audit.seconds)
    yield channel_check("load-in-token-gaps", GAPS, load.gaps, gaps, p.get("gaps", 1.0), why)
    yield channel_check("load-in-queueing", QUEUE, load.queue, queue, p.get("queue", 1.0), why)


def _seen(channel: Channel, rng: np.random.Generator) -> Separation | None:
    pairs = len(channel.fresh)
    return separation(channel.cached, channel.fresh, rng, 1 - ALPHA) if pairs > 1 else None


SUITE = Suite(
    "timing",
    "Time to first token of prompts that another tenant has cached",
    ("G2",),
    run,
    share=9.0,
    least_s=90.0,
)
