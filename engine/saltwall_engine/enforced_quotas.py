"""The quotas that the engine core enforces, as the API process has told it.

Lives on the API server's event loop, which converts amounts to blocks and finds the differences;
the scheduler's thread gets these a slice at a time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from saltwall_tenants.wire import Capacity, Quotas, WireError

CHANGES_PER_CALL = 150
"""Tenants per call into the engine core, so that a call stays near a millisecond."""

_log = logging.getLogger("vllm.saltwall")


class Terms(NamedTuple):
    """One tenant's quota as the engine core takes it; blocks, and None for no ceiling."""

    reserve: int = 0
    ceiling: int | None = None
    weight: float = 1.0
    store: bool = True


def terms_of(section: Quotas, capacity: Capacity) -> dict[UUID, Terms]:
    """A section in an engine's blocks.

    Raises:
        WireError: it promises more than the engine has, or what cannot be converted.
    """
    shares = section.blocks(capacity)
    return {
        tenant: Terms(*shares[tenant], float(quota.weight), quota.store)
        for tenant, quota in section.tenants.items()
    }


class EnforcedQuotas:
    """The quota section in force, and the way from one to the next."""

    def __init__(self, capacity: Capacity, call: Callable[..., Awaitable[Any]]) -> None:
        self.capacity = capacity
        self.refusals = 0
        self._call = call
        self._section: Quotas | None = None
        self._terms: dict[UUID, Terms] = {}
        self._reserved = 0
        self._told: dict[UUID, Terms | None] = {}
        self._applying = asyncio.Lock()

    @property
    def epoch(self) -> int | None:
        """That of the section in force; None before the first."""
        return self._section.epoch if self._section else None

    def limit(self, tenant: UUID) -> int:
        """The blocks that a request of the tenant can count on.

        No more than its ceiling, nor than the reserves of others leave: what they cache there is
        never taken for it. While a section is being applied, the one before counts.
        """
        terms = self._terms.get(tenant, Terms())
        beside = self.capacity.blocks - self._reserved + terms.reserve
        return beside if terms.ceiling is None else min(terms.ceiling, beside)

    async def apply(self, section: Quotas | WireError | None) -> dict[str, Any]:
        """Makes a section the one in force; without one, what is in force stays.

        Returns:
            For the gateway: the epoch in force, or why the section was refused besides.
        """
        async with self._applying:
            try:
                if isinstance(section, WireError):
                    raise section
                if section is not None:
                    await self._replace(section)
            except WireError as error:
                return self._refused(str(error), error.refusal.value)
            except Exception as error:  # the authorisation is in force and must be answered for
                _log.exception("Saltwall: quotas could not be applied")
                return self._refused(f"the engine core failed ({type(error).__name__})", "failed")
            return {"epoch": self.epoch}

    async def _replace(self, section: Quotas) -> None:
        section.check_successor(self._section)
        if section.epoch == self.epoch:
            return
        wanted = await asyncio.to_thread(terms_of, section, self.capacity)
        changes = self._changes(wanted)
        for start in range(0, len(changes), CHANGES_PER_CALL):
            part = changes[start : start + CHANGES_PER_CALL]
            # Until the core has answered, what it knows of these is unknown.
            self._told.update(dict.fromkeys((tenant for tenant, _ in part), None))
            await self._call(
                "saltwall_set_quotas", [[tenant.hex, *terms] for tenant, terms in part]
            )
            self._told.update(part)
        self._told = dict(wanted)
        self._terms = wanted
        self._reserved = sum(terms.reserve for terms in wanted.values())
        self._section = section
        while await self._call("saltwall_trim"):  # an idle engine takes no step that would
            pass

    def _changes(self, wanted: Mapping[UUID, Terms]) -> list[tuple[UUID, Terms]]:
        """What the core must be told, lowered reserves first: their sum never passes the pool."""
        default = Terms()
        releases, changes = [], []
        for tenant in self._told.keys() | wanted.keys():
            before, after = self._told.get(tenant, default), wanted.get(tenant, default)
            if before is None:  # an earlier call failed: a reserve of nothing is never too much
                releases.append((tenant, after._replace(reserve=0)))
            if before != after:
                changes.append((after.reserve - (before or default).reserve, tenant, after))
        changes.sort(key=lambda change: change[0])
        return releases + [(tenant, after) for _, tenant, after in changes]

    def _refused(self, message: str, reason: str) -> dict[str, Any]:
        self.refusals += 1
        return {"refused": message, "reason": reason, "epoch_in_force": self.epoch}
