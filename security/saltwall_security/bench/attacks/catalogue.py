"""Every attack on the bench: what should hold, and what to do where it does not."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from saltwall_security.bench.attacks.accounting import accounting
from saltwall_security.bench.attacks.admission import generation, revocation, ticket
from saltwall_security.bench.attacks.fairness import (
    head_of_line,
    long_steps,
    starvation,
    weights,
)
from saltwall_security.bench.attacks.identity import label, ownership, salt
from saltwall_security.bench.attacks.reserves import ceiling, flood, own_idle, preemption
from saltwall_security.bench.attacks.strictness import strict
from saltwall_security.bench.sighting import Attack


@dataclass(frozen=True)
class Entry:
    """One attack.

    Args:
        guarantee: the one that fails with it.
        claim: what should hold.
        advice: what to do where it does not.
        control: what the attack itself sees where there is something to see; empty where only
            another scheduler shows that.
    """

    attack: Attack
    guarantee: str
    claim: str
    advice: str
    control: str = ""


_RESERVES = "Give tenants reserves, and check that the scheduler in use is the one that keeps them."
_TURNS = "Serve tenants by turns instead of requests in order of arrival."
_TICKETS = "EngineCore must check tickets itself: not everything comes through the HTTP middleware."

CATALOGUE: Final[Mapping[str, Entry]] = {
    "reserve": Entry(
        flood,
        "G4",
        "No flood of others evicts what a tenant has cached within its reserve",
        _RESERVES,
    ),
    "own-idle": Entry(
        own_idle,
        "G4",
        "A tenant below its reserve grows at the borrowers' cost, not its own cache's",
        _RESERVES,
    ),
    "ceiling": Entry(
        ceiling,
        "G4",
        "No tenant holds more than its ceiling, pinned and cached together",
        "Set ceilings, and count what running requests pin as well as what stays cached.",
    ),
    "preemption": Entry(
        preemption,
        "G4",
        "No request of a tenant within its reserve is preempted for others",
        _RESERVES,
    ),
    "head-of-line": Entry(
        head_of_line,
        "G6",
        "A request that lacks blocks holds up its own tenant alone",
        _TURNS,
    ),
    "starvation": Entry(
        starvation,
        "G6",
        "A tenant within its reserve is served in a few steps, whatever of others' waits or runs",
        _TURNS,
    ),
    "weights": Entry(
        weights,
        "G6",
        "Tenants that compete for a step's tokens are served by their weights",
        "Count what each tenant is served, over its weight, and serve the lowest count next.",
    ),
    "steps": Entry(
        long_steps,
        "G6",
        "Between two tokens of a tenant's, others' prompts are computed a bounded part at a time",
        "Bound the prompt tokens of a step while more than one tenant has work.",
    ),
    "strict": Entry(
        strict,
        "G5",
        "What a strict tenant hits and keeps is the same alone and beside others",
        "Give the tenant a reserve that equals its ceiling, and check that both are enforced.",
        "The same tenant without a reserve does notice the others.",
    ),
    "accounting": Entry(
        accounting,
        "G11",
        "After aborts, copies and preemption nothing stays pinned, and all is as reported",
        "Restart the engine: blocks that stay pinned are lost to everybody until then.",
        "A reference that was not given back shows in the same count.",
    ),
    "ownership": Entry(
        ownership,
        "G1",
        "A cached block is served to its owner alone, even where block hashes collide",
        "Check the owner on every hit, besides the hash.",
    ),
    "salt": Entry(
        salt,
        "G1",
        "No block of two tenants has one hash, not even after a collision in the block before",
        "Hash the salt into every block, not only into the first.",
    ),
    "label": Entry(
        label,
        "G10",
        "Neither salt nor credential is where workers, connectors and KV events see it",
        "Put a one-way label into `Request.cache_salt` once the credential has been checked.",
    ),
    "ticket": Entry(
        ticket,
        "G7",
        "EngineCore lets in no request without a genuine, current ticket for this engine",
        _TICKETS,
        "A request with a genuine ticket is let in and served.",
    ),
    "generation": Entry(
        generation,
        "G7",
        "No request is let in under a salt that has been replaced",
        _TICKETS,
        "A request under the new salt is let in and served.",
    ),
    "revocation": Entry(
        revocation,
        "G7",
        "A revoked tenant's requests end at once, and what it had cached is out of reach",
        "Abort what runs and waits, and unhash what is cached and what is freed later.",
        "The requests ran before, and another tenant's runs on to its end.",
    ),
}
