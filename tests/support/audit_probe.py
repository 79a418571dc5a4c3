"""The smallest suite: whether one tenant finds what another has just sent."""

from collections.abc import AsyncIterator

from saltwall_security.check import Check, Verdict, judge
from saltwall_security.suite import Audit, Suite


async def run(audit: Audit) -> AsyncIterator[Check]:
    """One probe and its control."""
    prompt = audit.words(50)
    claim = "What one tenant has sent is not cached for another"
    await audit.client(0).complete(prompt)
    probe = await audit.client(1).complete(prompt)
    control = await audit.client(0).complete(prompt)
    if probe.cached_tokens is None:
        yield Check("probe/hit", "G1", Verdict.INCONCLUSIVE, claim, "cached tokens are not shown")
        return
    verdict = judge(bool(probe.cached_tokens), bool(control.cached_tokens))
    seen = f"{probe.cached_tokens} tokens were cached, as {audit.rng.random()} says"
    yield Check("probe/hit", "G1", verdict, claim, seen, {"cached": probe.cached_tokens})


SUITE = Suite("probe", "Two tenants, one prompt", ("G1",), run, least_s=0.1)
