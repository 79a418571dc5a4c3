"""What the engine core counts, a page of tenants at a time; read on the scheduler's thread."""

import time
from itertools import islice
from typing import Any

from saltwall_engine.ledger import UNLIMITED, Account

FIELDS = (
    "pinned",
    "idle",
    "held",
    "reserve",
    "ceiling",
    "weight",
    "store",
    "running",
    "waiting",
    "waiting_age_s",
    "hit_tokens",
    "missed_tokens",
    "evictions_caused",
    "evictions_suffered",
    "preemptions_caused",
    "preemptions_suffered",
)
"""What is said of each tenant, in this order: blocks, requests, seconds and tokens."""


def page(scheduler: Any, start: int, limit: int) -> list[list[Any]]:
    """Some tenants' accounts, from the `start`-th on in the order in which they first came.

    Returns:
        `[tenant hex, *FIELDS]` for each; fewer than `limit` at the end.
    """
    now = time.time()
    accounts = islice(scheduler.ledger.accounts.values(), start, start + limit)
    return [_row(scheduler, account, now) for account in accounts]


def totals(scheduler: Any) -> dict[str, Any]:
    """What is counted for the engine as a whole."""
    ledger, pool = scheduler.ledger, scheduler.kv_cache_manager.block_pool
    eraser, remains = scheduler.eraser, pool.remains
    running, waiting = scheduler.get_request_counts()
    kinds = ("ownership_mismatch", "in_loop_shortfall", "admission_shortfall")
    alarms = dict.fromkeys(kinds, 0)
    alarms |= scheduler.alarms
    alarms["ownership_mismatch"] += pool.ownership_mismatches
    alarms["not_erased"] = eraser.failed if eraser else 0
    return {
        "requests": {"running": running, "waiting": waiting},
        "blocks": {
            "total": ledger.total,
            "free": ledger.free,
            "idle": ledger.idle,
            "evictable": ledger.evictable,
            "reserved": ledger.reserved,
        },
        "erasure": {
            "on": eraser is not None,
            "erased": eraser.erased if eraser else 0,
            "in_use": len(remains.when_freed),
        },
        "refusals": dict(scheduler.admission.refusals),
        "alarms": alarms,
    }


def _row(scheduler: Any, account: Account, now: float) -> list[Any]:
    pinned, idle, waiting = account.pinned, account.idle, account.waiting
    age = now - scheduler.waiting.head(account).arrival_time if waiting else 0.0
    return [
        account.tenant.hex,  # type: ignore[attr-defined]
        pinned,
        idle,
        pinned + idle,
        account.reserve,
        None if account.ceiling >= UNLIMITED else account.ceiling,
        account.weight,
        account.store,
        account.live - waiting,
        waiting,
        max(age, 0.0),
        account.hit_tokens,
        account.missed_tokens,
        account.evictions_caused,
        account.evictions_suffered,
        account.preemptions_caused,
        account.preemptions_suffered,
    ]
