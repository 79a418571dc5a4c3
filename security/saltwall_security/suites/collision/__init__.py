"""G8: whether two different blocks can have one hash, and what would come of it.

All but the attestation is made here, without the target.
"""

from collections.abc import AsyncIterator
from dataclasses import replace

from saltwall_security.abandonable import abandonable
from saltwall_security.bench.process import Benches
from saltwall_security.bench.worker import STOCK
from saltwall_security.check import Check, Verdict
from saltwall_security.suite import Audit, Suite
from saltwall_security.suites.collision.attestation import attestation
from saltwall_security.suites.collision.crafting import craft, ownership, weak_hashes
from saltwall_security.suites.collision.digest import digest
from saltwall_security.suites.collision.encoding import encoding
from saltwall_security.suites.collision.hasher import hasher, time_algorithms
from saltwall_security.suites.collision.operators import speed


async def run(audit: Audit) -> AsyncIterator[Check]:
    """From what an engine says of its hash to what happens when a hash is broken.

    What is computed here is about the hash that Saltwall is described to use. Nothing follows for a
    target that is not seen to hash like that.
    """
    attested = await attestation(audit)
    yield attested
    schedulers = {"stock": STOCK}
    if audit.target.scheduler is not None:
        schedulers["target"] = audit.target.scheduler
    # vLLM is imported there while the others are computed here.
    async with Benches(schedulers, audit.seed) as examined:
        described = [await abandonable(part, audit) for part in (encoding, digest)]
        crafted = await abandonable(craft, audit)
        described.append(weak_hashes(crafted))
        hashed = await hasher(audit, examined.get("target"))
        yield hashed
        applies = Verdict.HELD in (attested.verdict, hashed.verdict)
        for check in described:
            yield check if applies else replace(check, guarantee=None)
        yield await ownership(crafted, examined["stock"], examined.get("target"))
        yield speed(await time_algorithms(examined["stock"]), crafted)


SUITE = Suite(
    "collision",
    "Two blocks with one hash: encoding, digest, weaker hashes, and what a collision would do",
    ("G8",),
    run,
    share=1.5,
    least_s=12.0,
    offline=True,
)
