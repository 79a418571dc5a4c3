"""Deletion: what the engine still holds of the tenant, and what its memory still does."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from saltwall_security.check import Check, Verdict, judge
from saltwall_security.client import Client
from saltwall_security.engine_control import EngineControl
from saltwall_security.errors import AuditError
from saltwall_security.prober import Prober
from saltwall_security.suite import Audit
from saltwall_security.suites.rotation.fingerprints import (
    Fingerprint,
    Traces,
    fingerprints,
    locate,
    pages,
    traces,
    unique,
)
from saltwall_security.suites.rotation.memory import WINDOW, Memory
from saltwall_security.target import Operator, Tenant

CANARY_TOKENS, LEAST_ID, MOST_ID = 640, 300, 5000
BEFORE, AFTER = 2, 4
"""Other prompts of the same length: they overwrite what a prompt leaves beside its cache."""
LEAST = 32
"""Fewer fingerprints tell nothing."""
KEPT = 0.9
"""Of a bystander's fingerprints must be there still, or memory was turned over anyway."""
WITHIN_S = 10.0
POLL_S = 0.2
CLAIMS = {
    "deleted": "Of a deleted tenant the engine holds no block any more",
    "erased": "A deleted tenant's keys and values are gone from the engine's KV cache in memory",
}
ADVICE = "Overwrite purged blocks before they are used again: SALTWALL_ZEROIZE=1 at the engine."


@dataclass(frozen=True)
class Prepared:
    """Fingerprints of a canary prompt in the KV cache, of a bystander's, and of the first elsewhere
    in memory: activations, which nobody promises to erase."""

    memory: Memory
    mine: Sequence[Fingerprint]
    others: Sequence[Fingerprint]
    elsewhere: Sequence[Fingerprint]


async def check_deletion(
    audit: Audit, operator: Operator, probe: Prober, tenant: Tenant
) -> AsyncIterator[Check]:
    """Has a canary prompt cached, deletes the tenant, and looks for what is left."""
    target = audit.target
    prepared: Prepared | str
    try:
        prepared = await _prepare(audit, probe, tenant)
    except AuditError as error:
        prepared = str(error)
        await _send(audit, probe, audit.client(tenant))
    erases: bool | None = None
    if not (target.control_secret and target.engine_url):
        await asyncio.to_thread(operator.delete_tenant, tenant)
        yield _not_tested("deleted", "the engine's control secret is needed to count its blocks")
    else:
        async with EngineControl(target) as control:
            before = (await control.usage()).of(tenant).held
            await asyncio.to_thread(operator.delete_tenant, tenant)
            usage, took = await control.until(lambda now: now.of(tenant).held == 0, WITHIN_S)
        erases = usage.erases
        held = usage.of(tenant).held
        yield Check(
            "rotation/deleted",
            "G9",
            judge(held > 0, before > 0),
            CLAIMS["deleted"],
            f"{held} blocks were held {took:.1f} s after the tenant was deleted.",
            {"held_before": before, "held_after": held, "after_s": round(took, 3)},
            f"Before, it held {before}.",
            advice="Purge a tenant's blocks with the policy that no longer names it.",
        )
    if isinstance(prepared, str):
        verdict = Verdict.NOT_TESTED if target.engine_pid is None else Verdict.INCONCLUSIVE
        yield Check("rotation/erased", "G9", verdict, CLAIMS["erased"], f"Not told: {prepared}.")
        return
    memory = prepared.memory
    await _until(lambda: asyncio.to_thread(_gone, memory, prepared.mine))
    mine, others, elsewhere = await asyncio.to_thread(
        traces, memory, prepared.mine, prepared.others, prepared.elsewhere
    )
    yield _erased(prepared, mine, others, elsewhere, erases)


async def _prepare(audit: Audit, probe: Prober, tenant: Tenant) -> Prepared:
    """Sends the canary prompts, and looks at memory before and after each.

    Raises:
        AuditError: there is no memory to read, or the cache is not in it.
    """
    pid = audit.target.engine_pid
    if pid is None:
        raise AuditError("the engine's process is needed, to read its memory")
    audit.say("reading the engine's memory")
    memory = await asyncio.to_thread(Memory, pid)
    bystander, noise = audit.client(1), audit.client(0)
    snapshots = []
    for client, prompts in (
        (noise, BEFORE),
        (audit.client(tenant), 1),
        (bystander, 1),
        (noise, AFTER),
    ):
        for _ in range(prompts):
            await _send(audit, probe, client)
        snapshots.append(await asyncio.to_thread(memory.snapshot))

    def found() -> Prepared:
        located = locate(memory, pages(snapshots, 1), pages(snapshots, 2), audit.rng)
        each = (located.mine, located.others, located.elsewhere)
        return Prepared(memory, *unique(memory, *(fingerprints(memory, p) for p in each)))

    prepared = await asyncio.to_thread(found)
    fewest = min(len(prepared.mine), len(prepared.others))
    if fewest < LEAST:
        raise AuditError(
            f"only {fewest} places in the memory of process {pid} belong to a prompt: the KV cache "
            "is elsewhere, as on a GPU, or others turn it over"
        )
    return prepared


async def _send(audit: Audit, probe: Prober, client: Client) -> None:
    """A new prompt, of a length that is always the same where the server takes token ids."""
    ids = [audit.rng.randrange(LEAST_ID, MOST_ID) for _ in range(CANARY_TOKENS)]
    answer = await client.complete(ids)
    if not answer.ok:
        await probe(client, audit.words(CANARY_TOKENS // 3))


def _gone(memory: Memory, found: Sequence[Fingerprint]) -> bool:
    return all(memory.read(each.place, WINDOW) != each.window for each in found)


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    began = time.monotonic()
    while time.monotonic() - began < WITHIN_S:
        if await holds():
            return
        await asyncio.sleep(POLL_S)


def _erased(
    prepared: Prepared, mine: Traces, others: Traces, elsewhere: Traces, erases: bool | None
) -> Check:
    mode = {
        True: "The engine says that it overwrites purged blocks.",
        False: "The engine says that it does not overwrite purged blocks.",
        None: "",
    }[erases]
    of, of_others = len(prepared.mine), len(prepared.others)
    return Check(
        "rotation/erased",
        "G9",
        judge(mine.anywhere > 0, others.anywhere >= KEPT * of_others),
        CLAIMS["erased"],
        f"Of {of} fingerprints of its cache, {mine.anywhere} were found in memory after the "
        f"deletion; where they had been there are {mine.zero} times zeros, {mine.other} times "
        f"other bytes. {mode}".strip(),
        {
            "fingerprints": of,
            "found_after": mine.anywhere,
            "zeroed": mine.zero,
            "overwritten_otherwise": mine.other,
            "engine_erases": erases,
            "activations": len(prepared.elsewhere),
            "activations_found_after": elsewhere.anywhere,
        },
        f"All {of} were found, once each, before; of another tenant's {of_others}, "
        f"{others.anywhere} are there still.",
        advice=ADVICE,
    )


def _not_tested(name: str, why: str) -> Check:
    return Check(f"rotation/{name}", "G9", Verdict.NOT_TESTED, CLAIMS[name], f"Not run: {why}.")
