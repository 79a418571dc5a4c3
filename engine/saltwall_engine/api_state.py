"""What the API process knows: keys, policy, lease and the engine core's attestation.

Lives on the API server's event loop. The policy is one immutable object, swapped by assignment.
"""

import asyncio
import importlib.metadata
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import vllm
from vllm.v1.engine.exceptions import EngineDeadError

from saltwall_engine import usage
from saltwall_engine.capacity import Group, blocks_for
from saltwall_engine.enforced_quotas import CHANGES_PER_CALL, EnforcedQuotas
from saltwall_engine.metrics import TenantMetrics
from saltwall_tenants.wire import (
    VECTOR_DIGEST,
    Attestation,
    Authorisation,
    Capacity,
    EngineKeys,
    Policy,
    Refusal,
    WireError,
)

ALIVE_S = 0.5
"""How often a call into the engine core looks whether that is still alive (seconds)."""
USAGE_PER_CALL = 250
"""Tenants whose usage is read in one call into the engine core, which takes well under 1 ms."""


class Needs(NamedTuple):
    """What one request takes of the KV cache: blocks of tokens, and tokens beyond its own."""

    blocks_for: Callable[[int], int]
    max_model_len: int
    lookahead_tokens: int


class ApiState:
    """One engine's control state, and the calls that carry it into the engine core."""

    def __init__(self, keys: EngineKeys, engine_core: Any) -> None:
        self.keys = keys
        self._core = engine_core
        self._authorisation: Authorisation | None = None
        self._lease_until = 0.0
        self._pushing = asyncio.Lock()
        self._decoded: tuple[bytes, Any] = b"", None
        self._quotas: EnforcedQuotas | None = None
        self.attestation: Attestation | None = None
        self.needs: Needs | None = None
        self._metrics = TenantMetrics()
        self._scraping = asyncio.Lock()
        self.policy_alarms = 0
        self.misfits = 0

    async def attest(self) -> None:
        """Asks the engine core what it hashes with, and how large it is; until then nothing is
        ready.
        """
        core = await self._call("saltwall_attest")
        capacity = Capacity.of(core["capacity"])
        self._quotas = EnforcedQuotas(capacity, self._call)
        groups = [Group(*group) for group in core["groups"]]
        self.needs = Needs(
            blocks_for(groups, core["max_model_len"]),
            core["max_model_len"],
            core["lookahead_tokens"],
        )
        self.attestation = Attestation(
            name=self.keys.name,
            algorithm=core["algorithm"],
            vector_digest=core["vector_digest"],
            vllm=vllm.__version__,
            saltwall=importlib.metadata.version("saltwall"),
            capacity=capacity,
        )

    @property
    def quotas(self) -> EnforcedQuotas:
        """The quotas in force.

        Raises:
            WireError: the engine core has not been asked for its size yet.
        """
        if self._quotas is None:
            raise WireError(Refusal.NOT_READY)
        return self._quotas

    def check_ready(self) -> None:
        """Raises:
        WireError: no new request may be taken now.
        """
        if self.attestation is None or self.attestation.vector_digest != VECTOR_DIGEST:
            raise WireError(Refusal.NOT_READY, "block hashes differ from the test vectors")
        if self._authorisation is None:
            raise WireError(Refusal.NO_POLICY)
        if time.monotonic() > self._lease_until:
            raise WireError(Refusal.LEASE_EXPIRED)

    @property
    def authorisation(self) -> Authorisation:
        """The policy in force.

        Raises:
            WireError: there is none yet.
        """
        if self._authorisation is None:
            raise WireError(Refusal.NO_POLICY)
        return self._authorisation

    async def decode(self, body: bytes) -> Policy:
        """Parses a push, in a thread: it may be of ten thousand tenants.

        Raises:
            WireError: it is no policy for this engine.
        """
        if body == self._decoded[0]:  # most pushes renew the lease and say nothing new
            return self._decoded[1]
        policy = await asyncio.to_thread(Policy.decode, body, self.keys.name)
        self._decoded = body, policy
        return policy

    async def apply(self, policy: Policy) -> dict[str, Any]:
        """Makes a policy the one in force, here and in the engine core, and renews the lease.

        What it takes away is refused here before the engine core hears of it, what it adds only
        after; a tenant is never let in by one half and thrown out by the other. The quotas come
        last: whatever becomes of them, the rest is in force.

        Returns:
            What became of the quotas (`EnforcedQuotas.apply`).

        Raises:
            WireError: its authorisation is older than the one in force, or another of its epoch.
        """
        async with self._pushing:
            new, old = policy.authorisation, self._authorisation
            try:
                new.check_successor(old)
            except WireError:
                self.policy_alarms += 1
                raise
            before = dict(old.tenants) if old else {}
            if old is not None:
                common = {t: g & new.tenants.get(t, frozenset()) for t, g in before.items()}
                self._authorisation = Authorisation(
                    old.epoch, {t: g for t, g in common.items() if g}
                )
            changed = [
                [t.hex, sorted(new.tenants.get(t, ()))]
                for t in before.keys() | new.tenants.keys()
                if before.get(t) != new.tenants.get(t)
            ]
            changed.sort(key=lambda change: len(change[1]))  # revocations first
            lost: list[Any] = []
            for start in range(0, len(changed), CHANGES_PER_CALL):
                lost += await self._call(
                    "saltwall_authorise", changed[start : start + CHANGES_PER_CALL]
                )
            await self._call("saltwall_renew", policy.lease.seconds)
            self._authorisation = new
            self._lease_until = time.monotonic() + policy.lease.seconds
        await self.purge(lost)
        return await self.quotas.apply(policy.quotas)

    async def purge(self, owners: list[Any]) -> int:
        """Unhashes all cached blocks of these owners, a slice at a time; returns how many.

        What is not in use has been overwritten then, where that is on.
        """
        total, left = 0, len(owners)
        while left:
            done, left = await self._call("saltwall_purge", owners)
            total += done
        erasing = len(owners)
        while erasing:
            erasing = await self._call("saltwall_erasing")
        return total

    async def purge_tenant(self, tenant: str) -> int:
        """Unhashes all cached blocks of one tenant, of every generation."""
        return await self.purge(await self._call("saltwall_owners", tenant))

    async def usage(self) -> dict[str, Any]:
        """What the engine core counts and enforces, with this process's alarms."""
        found = await self._call("saltwall_usage", 0, USAGE_PER_CALL)
        rows = found["tenants"]
        while rows and len(rows) % USAGE_PER_CALL == 0:
            more = (await self._call("saltwall_usage", len(rows), USAGE_PER_CALL))["tenants"]
            if not more:
                break
            rows += more
        found["tenants"] = {
            tenant: dict(zip(usage.FIELDS, fields, strict=True)) for tenant, *fields in rows
        }
        found["capacity"] = self.quotas.capacity.document()
        found["quotas"] = {"epoch": self.quotas.epoch}
        if self.misfits:
            found["refusals"]["does_not_fit"] = self.misfits
        found["alarms"] |= {"policy": self.policy_alarms, "quotas": self.quotas.refusals}
        return found

    async def metrics(self) -> bytes:
        """The same for Prometheus, of the tenants that hold most."""
        async with self._scraping:  # counters are carried on from one reading to the next
            return self._metrics.render(await self.usage())

    async def _call(self, name: str, *args: Any) -> Any:
        """One call into the engine core.

        Raises:
            EngineDeadError: the core has died. vLLM would let the caller wait for ever, and this
                server, which ends when all its requests have, with it.
        """
        call = asyncio.ensure_future(self._core.call_utility_async(name, *args))
        try:
            while not (await asyncio.wait([call], timeout=ALIVE_S))[0]:
                if self._core.resources.engine_dead:
                    raise EngineDeadError
            return call.result()
        finally:
            call.cancel()
