"""Who plays which part: a tenant with a reserve, one without, a strict one, and attackers."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TypeVar

from saltwall_security.client import Client
from saltwall_security.engine_control import check_alone
from saltwall_security.errors import AuditError
from saltwall_security.prober import Prober, Refused
from saltwall_security.suite import Audit
from saltwall_security.suites.eviction.scale import Scale
from saltwall_security.suites.eviction.strategies import Strategy
from saltwall_security.target import Operator, Tenant

T = TypeVar("T")

FURTHER_KEYS = 3
ENFORCED_S = 30.0
"""How long a quota may take until an engine enforces it, before the suite gives up."""


class Promise(Enum):
    """What the auditor knows of the victim's reserve."""

    GIVEN = "the auditor gave it, and saw it enforced"
    UNKNOWN = "the target has tenants, and may have given it one"
    IMPOSSIBLE = "the server does not tell clients apart, so it keeps nothing for any of them"


@dataclass(frozen=True)
class Cast:
    """The tenants of the experiment.

    Args:
        victim: it has a reserve, as far as `promise` says.
        exposed: it has none: what an attack can do shows on it. Without an operator it is the
            attacker itself, whose old prompts its own flood evicts.
        strict: its ceiling is its reserve; None without an operator.
    """

    victim: Client
    exposed: Client
    attacker: Client
    strict: Client | None
    promise: Promise


@asynccontextmanager
async def casting(audit: Audit, scale: Scale) -> AsyncIterator[Cast]:
    """The target's tenants play, unchanged; an operator creates the others, for the while.

    Raises:
        AuditError: what the operator's command said, such as that reserves do not fit; or several
            engines share the requests.
    """
    operator = audit.target.operator
    victim, attacker = audit.client(0), audit.client(1)
    if operator is None:
        yield Cast(victim, attacker, attacker, None, await _promise(audit))
        return
    await check_alone(operator)
    async with _created(operator, "protected", "strict", "exposed") as made:
        protected, strict, exposed = made
        await _reserve(operator, protected, strict, scale)
        yield Cast(
            audit.client(protected),
            audit.client(exposed),
            attacker,
            audit.client(strict),
            Promise.GIVEN,
        )


@asynccontextmanager
async def armed(audit: Audit, cast: Cast, strategy: Strategy) -> AsyncIterator[list[Client]]:
    """The attackers' clients for a strategy, with the keys and the ceiling that it takes."""
    operator, attacker = audit.target.operator, cast.attacker.tenant
    if strategy.ceiling is not None and operator is not None:
        async with _created(operator, "attacker") as (limited,):
            options = {"ceiling": strategy.ceiling}
            await asyncio.to_thread(partial(operator.set_quota, limited, **options))
            yield [audit.client(limited)]
        return
    if not strategy.keys:
        yield [cast.attacker]
        return
    tenants = [attacker, *audit.target.tenants[2:]]
    if operator is None or attacker.id is None:
        yield [audit.client(tenant) for tenant in tenants]
        return
    async with _further_keys(operator, attacker) as keys:
        tenants += [replace(attacker, key=key) for key in keys]
        yield [audit.client(tenant) for tenant in tenants]


@asynccontextmanager
async def _further_keys(operator: Operator, tenant: Tenant) -> AsyncIterator[list[str]]:
    """New keys of a tenant; they are revoked at the end of the block."""
    made: list[tuple[str, str]] = []
    try:
        await _together([lambda: made.append(operator.create_key(tenant))] * FURTHER_KEYS)
        yield [key for _, key in made]
    finally:
        await _together([partial(operator.revoke_key, public_id) for public_id, _ in made])


@asynccontextmanager
async def _created(operator: Operator, *roles: str) -> AsyncIterator[list[Tenant]]:
    """New tenants, one a role; they are deleted at the end of the block."""
    run = secrets.token_hex(3)
    names = [f"audit-{run}-{role}" for role in roles]
    made: list[Tenant] = []
    try:
        await _together([partial(_create, operator, name, made) for name in names])
        yield sorted(made, key=lambda tenant: names.index(tenant.name))
    finally:
        await _together([partial(operator.delete_tenant, tenant) for tenant in made])


async def _promise(audit: Audit) -> Promise:
    """Many servers list their models to everybody: only who generates for anybody knows nobody."""
    if len({tenant.key for tenant in audit.target.tenants}) == 1:
        return Promise.IMPOSSIBLE
    stranger = Tenant("nobody", f"sk-{secrets.token_hex(16)}")
    try:
        await Prober()(audit.client(stranger), audit.words(1))
    except Refused:
        return Promise.UNKNOWN
    return Promise.IMPOSSIBLE


def _create(operator: Operator, name: str, made: list[Tenant]) -> None:
    made.append(operator.create_tenant(name))  # one by one: each has to be deleted again


async def _reserve(operator: Operator, victim: Tenant, strict: Tenant, scale: Scale) -> None:
    """Sets both reserves, and waits until they are in force."""
    await _together(
        [
            partial(operator.set_quota, victim, reserve=f"{scale.reserve}t"),
            partial(operator.set_quota, strict, reserve=f"{scale.strict}t", strict=True),
        ]
    )
    began = time.monotonic()
    while True:
        quotas = await asyncio.to_thread(operator.enforced_quotas)
        if all(quotas.get(tenant.name, {}).get("reserve") for tenant in (victim, strict)):
            return
        if time.monotonic() - began > ENFORCED_S:
            raise AuditError(f"the engine does not enforce a reserve {ENFORCED_S:.0f} s after")


async def _together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Makes calls that block, each on a thread, and waits for all of them.

    Raises:
        AuditError: the first that failed.
    """
    ended = await asyncio.gather(*map(asyncio.to_thread, calls), return_exceptions=True)
    for each in ended:
        if isinstance(each, BaseException):
            raise each
    return [each for each in ended if not isinstance(each, BaseException)]
