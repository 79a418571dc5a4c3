"""What an engine says of itself to whoever has its control secret."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

import httpx

from saltwall_security.bounded_http import http_client
from saltwall_security.client import IDLE_S
from saltwall_security.errors import AuditError
from saltwall_security.target import Operator, Target, Tenant

USAGE: Final = "/saltwall/v1/usage"
METRICS: Final = ("/metrics", "/saltwall/v1/metrics")
TIMEOUT_S = 20.0
POLL_S = 0.05


@dataclass(frozen=True)
class Account:
    """What the engine counts of one tenant: blocks, and requests."""

    pinned: int = 0
    idle: int = 0
    reserve: int = 0
    ceiling: int | None = None
    running: int = 0
    waiting: int = 0
    evictions_suffered: int = 0

    @property
    def held(self) -> int:
        """Blocks that the tenant is charged with."""
        return self.pinned + self.idle

    @property
    def requests(self) -> int:
        """Unfinished requests."""
        return self.running + self.waiting


@dataclass(frozen=True)
class Usage:
    """One answer of the engine.

    Args:
        blocks: of the whole pool.
        block_tokens: tokens in a block.
        free: blocks that nobody holds.
        idle: cached ones that nobody uses.
        accounts: by the tenant's id in hex.
        quota_refusals: how often it was told quotas that it does not take.
        erases: whether it says that it overwrites purged blocks; None if it does not say.
    """

    blocks: int
    block_tokens: int
    free: int
    idle: int
    accounts: Mapping[str, Account] = field(default_factory=dict)
    quota_refusals: int = 0
    erases: bool | None = None

    def of(self, tenant: Tenant) -> Account:
        """A tenant's account; all nothing for one that the engine has not heard of."""
        return self.accounts.get(hex_id(tenant), Account())


def hex_id(tenant: Tenant) -> str:
    """A tenant's id as engines write it; empty if it is not known."""
    return (tenant.id or "").replace("-", "")


async def check_alone(operator: Operator) -> None:
    """What one engine counts is all that there is, and what it has cached is hit.

    Raises:
        AuditError: several engines share the requests.
    """
    replicas = await asyncio.to_thread(operator.replicas)
    if replicas > 1:
        raise AuditError(
            f"{replicas} engines share a model's requests, and this watches one: attack one at a "
            "time, through a gateway that has no other"
        )


class EngineControl:
    """Asks the engine of a target, from when it is entered until it is left."""

    def __init__(self, target: Target) -> None:
        """
        Raises:
            AuditError: the target has no engine URL or control secret.
        """
        if not (target.engine_url and target.control_secret):
            raise AuditError("the engine's port and control secret are needed")
        self._http = http_client(
            TIMEOUT_S,
            base_url=target.engine_url.rstrip("/"),
            headers={"authorization": f"Bearer {target.control_secret}"},
            limits=httpx.Limits(keepalive_expiry=IDLE_S),
        )

    async def __aenter__(self) -> "EngineControl":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def usage(self) -> Usage:
        """What it counts now.

        Raises:
            AuditError: it does not say.
        """
        told = await self._ask("GET", USAGE)
        try:
            return _usage(told.json())
        except (ValueError, KeyError, TypeError, AttributeError):
            raise AuditError(f"the engine's {USAGE} is not as expected") from None

    async def until(self, holds: Callable[[Usage], bool], within_s: float) -> tuple[Usage, float]:
        """Asks until it holds, or the time is over; the last answer, and how long it took (s)."""
        began = time.monotonic()
        while True:
            usage = await self.usage()
            took = time.monotonic() - began
            if holds(usage) or took > within_s:
                return usage, took
            await asyncio.sleep(POLL_S)

    async def purge(self, tenant: Tenant) -> None:
        """Makes everything that is cached for a tenant unreachable."""
        await self._ask("POST", f"/saltwall/v1/tenants/{hex_id(tenant)}/purge")

    async def text(self, path: str) -> str:
        """Whatever it says on a route."""
        return (await self._ask("GET", path)).text

    async def _ask(self, method: str, path: str) -> httpx.Response:
        try:
            answer = await self._http.request(method, path)
        except httpx.HTTPError as error:
            raise AuditError(
                f"the engine does not answer on {path} ({type(error).__name__})"
            ) from None
        if answer.is_error:
            raise AuditError(f"the engine answers {answer.status_code} on {path}")
        return answer


def _usage(told: Mapping[str, Any]) -> Usage:
    return Usage(
        blocks=int(told["blocks"]["total"]),
        block_tokens=int(told["capacity"]["block_tokens"]),
        free=int(told["blocks"]["free"]),
        idle=int(told["blocks"]["idle"]),
        accounts={name: _account(row) for name, row in told["tenants"].items()},
        quota_refusals=int(told.get("alarms", {}).get("quotas", 0)),
        erases=told.get("erasure", {}).get("on"),
    )


def _account(row: Mapping[str, Any]) -> Account:
    return Account(**{name: row[name] for name in Account.__dataclass_fields__ if name in row})
