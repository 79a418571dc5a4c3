"""What Saltwall adds to vLLM's EngineCore: the second ticket check, and the control calls.

The calls run on the scheduler's thread, between steps (v1/engine/core.py looks utilities up by
name), so nothing here needs a lock.
"""

from functools import wraps
from typing import Any
from uuid import UUID

from vllm.exceptions import VLLMValidationError
from vllm.v1.engine.core import EngineCore
from vllm.v1.request import RequestStatus

from saltwall_engine import erasure, usage
from saltwall_engine.capacity import capacity_of, groups_of
from saltwall_engine.discretion import withhold_messages
from saltwall_engine.errors import BootRefused
from saltwall_engine.fit import DoesNotFit
from saltwall_engine.ledger import UNLIMITED, Quota
from saltwall_engine.salt_label import Owner, grant_of
from saltwall_tenants.wire import Refusal, WireError
from saltwall_tenants.wire.attestation import ALGORITHM

SLICE_S = 0.001
"""The longest that one purge call holds the scheduler's thread (seconds)."""

_stock_preprocess = EngineCore.preprocess_add_request
_stock_add = EngineCore.add_request


@wraps(_stock_preprocess)
def preprocess_add_request(self: Any, request: Any) -> Any:
    """Opens the ticket before the request exists, so that its first block is hashed with the salt.

    Runs on the input thread. What the HTTP middleware let through fails here only if somebody
    came another way.

    Raises:
        VLLMValidationError: the ticket does not open; vLLM finishes the request with an error.
    """
    try:
        if request.resumable:
            raise WireError(Refusal.MALFORMED, "streaming input sessions are not served")
        request.cache_salt = self.scheduler.admission.open(request.cache_salt)
    except WireError as error:
        raise VLLMValidationError(f"Saltwall refused the request: {error}") from None
    return _stock_preprocess(self, request)


@wraps(_stock_add)
def add_request(self: Any, request: Any, request_wave: int = 0) -> None:
    """Checks policy and quota once more, on the scheduler's thread; finishes what they forbid."""
    try:
        self.scheduler.admission.check(request.cache_salt)
        if request.request_id in self.scheduler.requests:
            raise WireError(Refusal.MALFORMED, "duplicate request id")
        self.scheduler.fit(request)
    except (WireError, DoesNotFit) as error:
        if not hasattr(self, "_send_abort_outputs_to_client"):
            raise VLLMValidationError(f"Saltwall refused the request: {error}") from None
        self._send_abort_outputs_to_client([request.request_id], request.client_index)
        return
    _stock_add(self, request, request_wave)


def saltwall_attest(self: Any) -> dict[str, Any]:
    """What the engine hashes with, and the size of its KV cache.

    The API process asks this once, when it begins to serve.

    Raises:
        BootRefused: purged blocks shall be overwritten, and cannot be.
    """
    withhold_messages()
    scheduler = self.scheduler
    if erasure.is_on():
        scheduler.begin_erasing(erasure.Eraser(self.model_executor))
    return {
        "algorithm": ALGORITHM,
        "vector_digest": scheduler.vector_digest,
        "capacity": capacity_of(scheduler).document(),
        "groups": [list(group) for group in groups_of(scheduler)],
        "max_model_len": scheduler.max_model_len,
        "lookahead_tokens": scheduler.num_lookahead_tokens,
    }


def saltwall_authorise(self: Any, changes: list[Any]) -> list[Any]:
    """Applies `[[tenant hex, [generations]], ...]`: whoever loses a generation is aborted now.

    Returns:
        `[[tenant hex, generation], ...]` that were lost, for purging.
    """
    scheduler = self.scheduler
    lost = scheduler.admission.replace({UUID(hex=t): frozenset(gens) for t, gens in changes})
    if lost:
        scheduler.kv_cache_manager.block_pool.remains.begin(lost)
        abort(self, lambda owner: owner in lost)
    return [[owner.tenant.hex, owner.generation] for owner in lost]


def saltwall_renew(self: Any, seconds: float) -> None:
    """Renews the lease."""
    self.scheduler.admission.renew(seconds)


def saltwall_purge(self: Any, owners: list[Any]) -> list[int]:
    """Unhashes cached blocks of `[[tenant hex, generation], ...]` for one slice.

    Returns:
        The blocks unhashed, and those still to do: call again while there are any.
    """
    whose = [Owner(UUID(hex=tenant), generation) for tenant, generation in owners]
    scheduler = self.scheduler
    unhashed = list(scheduler.kv_cache_manager.block_pool.purge(whose, SLICE_S))
    scheduler.erase()
    return unhashed


def saltwall_erasing(self: Any) -> int:
    """How many purged blocks are being overwritten; those still in use are not among them."""
    scheduler = self.scheduler
    if scheduler.eraser is None:
        return 0
    return int(scheduler.eraser.outstanding(wait=not scheduler.has_requests()))


def saltwall_owners(self: Any, tenant: str) -> list[Any]:
    """The owners of blocks within one tenant, as `saltwall_purge` takes them."""
    pool = self.scheduler.kv_cache_manager.block_pool
    return [[o.tenant.hex, o.generation] for o in pool.owners() if o.tenant.hex == tenant]


def saltwall_set_quotas(self: Any, changes: list[Any]) -> None:
    """Applies `[[tenant hex, reserve, ceiling or null, weight, store], ...]` in this order.

    Raises:
        QuotaError: the reserves add up to more than the pool; those before it are in force.
    """
    self.scheduler.set_quotas(
        (UUID(hex=tenant), Quota(reserve, UNLIMITED if ceiling is None else ceiling, weight, store))
        for tenant, reserve, ceiling, weight, store in changes
    )


def saltwall_trim(self: Any) -> int:
    """Evicts some idle blocks above lowered ceilings; returns how many tenants have more."""
    return int(self.scheduler.trim())


def saltwall_usage(self: Any, start: int, limit: int) -> dict[str, Any]:
    """Some tenants' accounts, and with the first of them what is counted for all (`usage.py`)."""
    tenants = usage.page(self.scheduler, start, limit)
    return {"tenants": tenants} | (usage.totals(self.scheduler) if start == 0 else {})


_CALLS = (
    saltwall_attest,
    saltwall_authorise,
    saltwall_erasing,
    saltwall_owners,
    saltwall_purge,
    saltwall_renew,
    saltwall_set_quotas,
    saltwall_trim,
    saltwall_usage,
)


def abort(self: Any, whose: Any) -> None:
    """Aborts every queued and running request of the owners for whom `whose(owner)` holds."""
    requests = self.scheduler.requests.values()
    grants = [(r.request_id, grant_of(r.cache_salt)) for r in requests]
    ids = [i for i, grant in grants if grant is None or whose(grant.owner)]
    aborted = self.scheduler.finish_requests(ids, RequestStatus.FINISHED_ABORTED)
    self._send_abort_outputs(aborted)


def install() -> None:
    """Puts the checks and calls on vLLM's EngineCore class."""
    EngineCore.preprocess_add_request = preprocess_add_request
    EngineCore.add_request = add_request
    for call in _CALLS:
        setattr(EngineCore, call.__name__, call)


def problems() -> list[str]:
    """Why the hooks are not live; empty when they are."""
    live = (
        EngineCore.preprocess_add_request is preprocess_add_request
        and EngineCore.add_request is add_request
        and all(getattr(EngineCore, call.__name__, None) is call for call in _CALLS)
    )
    return (
        [] if live else ["the ticket check in EngineCore is not live: start with `saltwall engine`"]
    )


def require_our_scheduler(cls: Any) -> Any:
    """Passes the scheduler class through.

    Raises:
        BootRefused: it is not Saltwall's.
    """
    if getattr(cls, "__module__", "") != "saltwall_engine.scheduler":
        raise BootRefused(["the plugin is loaded without its scheduler: use `saltwall engine`"])
    return cls
