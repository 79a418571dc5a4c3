"""A suite that goes on until it is interrupted."""

import asyncio
from collections.abc import AsyncIterator

from saltwall_security.check import Check, Verdict
from saltwall_security.suite import Audit, Suite


async def run(audit: Audit) -> AsyncIterator[Check]:
    """Says that it has begun, and waits."""
    audit.say("waiting")
    await asyncio.Event().wait()
    yield Check("endless/end", "G1", Verdict.HELD, "It ends", "It has ended")


SUITE = Suite("endless", "It goes on", ("G1",), run, least_s=0.1)
