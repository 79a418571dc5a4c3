"""Defects of pool, ledger, queue and preemption: whoever drives the scheduler class sees them."""

from typing import Any

from mutants import switch
from mutants.mutant import Mutant, Where

UNLIMITED = 2**62

QUOTA_ON_CACHED = Mutant(
    "quota-on-cached-only",
    "A ceiling counts cached blocks only, and not those that running requests pin.",
    Where.SCHEDULER,
    "scheduler",
    "G4",
)
CEILING_ON_PINNED = Mutant(
    "ceiling-ignores-idle",
    "A ceiling counts pinned blocks only, and not those that stay cached.",
    Where.SCHEDULER,
    "scheduler",
    "G4",
)
STRICT_BORROWS = Mutant(
    "strict-borrows",
    "A strict tenant borrows blocks beyond its reserve, and loses them to others again.",
    Where.SCHEDULER,
    "scheduler",
    "G5",
)


@QUOTA_ON_CACHED.reads("saltwall_engine.ledger:Account.ceiling")
def _(account: Any, ceiling: int) -> int:
    return ceiling if ceiling >= UNLIMITED else ceiling + account.pinned


@CEILING_ON_PINNED.replaces("saltwall_engine.ledger:Ledger.allowance")
def _(original: Any, ledger: Any, account: Any, hits: int = 0, ceiling: int | None = None) -> int:
    most = account.ceiling if ceiling is None else ceiling
    allowed = original(ledger, account, hits, most + account.idle)
    return int(min(allowed, max(0, most - account.pinned)))


@CEILING_ON_PINNED.replaces("saltwall_engine.free_blocks:FreeBlocks.take")
def _(original: Any, blocks: Any, account: Any, wanted: int, ceiling: int) -> Any:
    return original(blocks, account, wanted, ceiling + account.idle)


@CEILING_ON_PINNED.replaces("saltwall_engine.pool:OwnedBlockPool.trim")
def _(original: Any, pool: Any, account: Any, most: int | None = None) -> bool:
    return True


@STRICT_BORROWS.reads("saltwall_engine.ledger:Account.ceiling")
def _(account: Any, ceiling: int) -> int:
    return UNLIMITED if ceiling == account.reserve > 0 else ceiling


@QUOTA_ON_CACHED.replaces("saltwall_engine.usage:_row")
@STRICT_BORROWS.replaces("saltwall_engine.usage:_row")
def _(original: Any, *args: Any) -> Any:
    with switch.off():  # what is reported is the ceiling that was set
        return original(*args)


EVICTED_BELOW_RESERVE = Mutant(
    "eviction-below-reserve",
    "Other tenants' allocations evict idle blocks also of tenants within their reserve.",
    Where.SCHEDULER,
    "scheduler",
    "G4",
)


@EVICTED_BELOW_RESERVE.replaces("saltwall_engine.ledger:Ledger._settle")
def _(original: Any, ledger: Any, account: Any) -> None:
    ledger.evictable += account.idle - account.evictable
    account.evictable = account.idle


OWN_IDLE_RECYCLED = Mutant(
    "own-idle-recycled",
    "A tenant below its reserve recycles its own idle blocks; borrowers keep theirs.",
    Where.SCHEDULER,
    "scheduler",
    "G4",
)


@OWN_IDLE_RECYCLED.replaces("saltwall_engine.ledger:Ledger.allowance")
def _(original: Any, ledger: Any, account: Any, hits: int = 0, ceiling: int | None = None) -> int:
    room = (account.ceiling if ceiling is None else ceiling) - account.held
    if room < 0:
        return int(original(ledger, account, hits, ceiling))
    return int(min(ledger.free + ledger.evictable - account.evictable, room) + account.idle)


WAITING_BLOCKS_OTHERS = Mutant(
    "waiting-blocks-others",
    "A tenant whose request lacks blocks holds up every other tenant's that waits behind it.",
    Where.SCHEDULER,
    "scheduler",
    "G6",
)


@WAITING_BLOCKS_OTHERS.replaces("saltwall_engine.waiting:TenantQueue._next")
def _(original: Any, queue: Any) -> Any:
    for line in (*queue.urgent, *queue._parked):
        if line.requests and not queue._closed:
            return line if line.sits_out != queue._pass else None
    return original(queue)


FIRST_COME = Mutant(
    "first-come-first-served",
    "What a tenant has been served does not count: whoever has filled the queue goes first.",
    Where.SCHEDULER,
    "scheduler",
    "G6",
)


@FIRST_COME.writes("saltwall_engine.ledger:Account.tokens")
def _(account: Any, old: float, new: float) -> float:
    return old


PREEMPTED_WITHIN_RESERVE = Mutant(
    "preempted-within-reserve",
    "Who gives way is the tenant that pins most, also one within its reserve.",
    Where.SCHEDULER,
    "scheduler",
    "G4",
)


@PREEMPTED_WITHIN_RESERVE.replaces("saltwall_engine.preemption:_above")
def _(original: Any, account: Any, asked: int = 0) -> float:
    return float((account.pinned + asked) / account.weight)


PINNED_AFTER_ABORT = Mutant(
    "pinned-after-abort",
    "The blocks of an aborted request stay pinned for ever.",
    Where.SCHEDULER,
    "scheduler",
    "G11",
)


@PINNED_AFTER_ABORT.replaces("saltwall_engine.kv_cache_manager:TenantKVCacheManager.free")
def _(original: Any, manager: Any, request: Any) -> None:
    from vllm.v1.request import RequestStatus

    if request.status != RequestStatus.FINISHED_ABORTED:
        original(manager, request)


OWNER_CHECK_OFF = Mutant(
    "owner-check-off",
    "A cached block is served to whoever has its hash: two tenants whose hashes collide share KV.",
    Where.SCHEDULER,
    "collision",
    "G8",
)


@OWNER_CHECK_OFF.replaces("saltwall_engine.pool:OwnedBlockPool.get_cached_block")
def _(original: Any, pool: Any, *args: Any) -> Any:
    from vllm.v1.core.block_pool import BlockPool

    return BlockPool.get_cached_block(pool, *args)


CORE_CHECK_OFF = Mutant(
    "ticket-check-off-core",
    "EngineCore looks into a ticket that opens, and takes a request without one all the same.",
    Where.SCHEDULER,
    "scheduler",
    "G7",
)


@CORE_CHECK_OFF.replaces("saltwall_engine.admission:Admission.open")
def _(original: Any, admission: Any, cache_salt: object) -> Any:
    import hashlib
    from uuid import UUID

    from saltwall_engine.salt_label import Grant, Owner, SaltLabel
    from saltwall_tenants.wire import WireError

    try:
        return original(admission, cache_salt)
    except WireError:
        pass
    salt = hashlib.sha256(str(cache_salt).encode()).digest()
    return SaltLabel(Grant(Owner(UUID(int=0), 1), salt))


@CORE_CHECK_OFF.replaces("saltwall_engine.admission:Admission.check")
def _(original: Any, admission: Any, cache_salt: object) -> None:
    return None


RAW_SALT = Mutant(
    "raw-salt-in-request",
    "The raw salt stays in `Request.cache_salt`, where connectors, events and logs see it.",
    Where.SCHEDULER,
    "scheduler",
    "G10",
)


@RAW_SALT.replaces("saltwall_engine.salt_label:salt_label")
def _(original: Any, salt: bytes) -> str:
    return salt.hex()
