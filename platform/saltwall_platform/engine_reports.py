"""Asks every configured engine about itself, for the command line."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import httpx

from saltwall_platform.control import ControlError, EngineControl
from saltwall_platform.replicas import Replica, Replicas
from saltwall_platform.settings import Settings
from saltwall_platform.upstream import new_client
from saltwall_tenants.wire import Capacity, TicketRoot


@dataclass(frozen=True)
class EngineReport:
    """What one engine said.

    `problem` says why nothing is known of it, and is empty otherwise; `tenants` is its usage, by
    the tenant's hex id.
    """

    label: str
    problem: str = ""
    capacity: Capacity | None = None
    quotas_epoch: int | None = None
    tenants: dict[str, dict[str, Any]] = field(default_factory=dict)


async def ask_engines(
    settings: Settings, root: TicketRoot, *, usage: bool = False
) -> list[EngineReport]:
    """Asks all engines at once for their capacity, and for their usage besides."""
    async with new_client() as client:
        replicas = Replicas(settings.engines, root)
        return list(await asyncio.gather(*(_ask(client, r, usage=usage) for r in replicas)))


async def _ask(client: httpx.AsyncClient, replica: Replica, *, usage: bool) -> EngineReport:
    control = EngineControl(client, replica.engine, replica.keys)
    try:
        attestation = await control.attestation()
        if problems := attestation.problems(replica.engine.name):
            return EngineReport(replica.label, "; ".join(problems))
        if attestation.capacity is None:
            return EngineReport(replica.label, "it is of a release without quotas: upgrade it")
        told = await control.usage() if usage else {"tenants": {}}
    except ControlError as error:
        return EngineReport(replica.label, str(error))
    except (httpx.HTTPError, httpx.InvalidURL):
        return EngineReport(replica.label, f"it cannot be reached at {replica.engine.url}")
    epoch = (told.get("quotas") or {}).get("epoch")
    return EngineReport(replica.label, "", attestation.capacity, epoch, told["tenants"])
