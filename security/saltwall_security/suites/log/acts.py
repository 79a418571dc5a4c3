"""Administrative acts on a tenant of the auditor's own, and what the log has of them."""

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from saltwall_security.check import Check, judge
from saltwall_security.errors import AuditError
from saltwall_security.target import Operator, Tenant

CLAIM = "Each administrative act is in the audit log, once, by the time its command has ended"
LIMIT = 500
"""Of the newest events: others may act at the same time."""
GATEWAY = "gateway"
"""The actor of what follows from an act later, such as a salt's promotion."""
AT_FIRST = ("tenant.create", "key.create")

Events = Sequence[Mapping[str, Any]]


async def check_acts(operator: Operator) -> tuple[Check, Tenant]:
    """Does what an operator can do, and reads the log after the first act and after the last.

    Raises:
        AuditError: an act could not be done.
    """
    tenant = await asyncio.to_thread(operator.create_tenant, f"audit-log-{secrets.token_hex(3)}")
    first = await _actions(operator, tenant)
    expected = [*AT_FIRST]
    for action, act in _acts(operator, tenant):
        await asyncio.to_thread(act)
        expected.append(action)
    return _judged(first, expected, await _actions(operator, tenant)), tenant


def _acts(operator: Operator, tenant: Tenant) -> Sequence[tuple[str, Callable[[], object]]]:
    key: list[str] = []
    return (
        ("key.create", lambda: key.append(operator.create_key(tenant)[0])),
        ("key.revoke", lambda: operator.revoke_key(key[0])),
        ("quota.set", lambda: operator.set_quota(tenant, weight="2")),
        ("quota.clear", lambda: operator.clear_quota(tenant)),
        ("tenant.suspend", lambda: operator.suspend(tenant)),
        ("tenant.resume", lambda: operator.resume(tenant)),
        ("salt.rotate", lambda: _rotate(operator, tenant)),
        ("tenant.delete", lambda: operator.delete_tenant(tenant)),
    )


def _rotate(operator: Operator, tenant: Tenant) -> None:
    """Begins a rotation, without waiting for engines."""
    said = operator.printed("salt", "rotate", str(tenant.id), "--no-wait", "--json")
    if '"pending"' not in said and '"current"' not in said:
        raise AuditError("`saltwall salt rotate` has made no new salt")


async def _actions(operator: Operator, tenant: Tenant) -> Sequence[str]:
    """What the log says was done to a tenant, oldest first."""
    events = await asyncio.to_thread(operator.log_events, LIMIT)
    ours = [event for event in events if str(tenant.id) in json.dumps(event)]
    return [str(e.get("action")) for e in reversed(ours) if e.get("actor") not in (None, GATEWAY)]


def _judged(first: Sequence[str], expected: Sequence[str], found: Sequence[str]) -> Check:
    missing = Counter(expected) - Counter(found)
    extra = Counter(found) - Counter(expected)
    said = [f"{n} x {action} too few" for action, n in missing.items()]
    said += [f"{n} x {action} too many" for action, n in extra.items()]
    late = list(first) != list(AT_FIRST)
    if late:
        said.append(f"after the tenant was created the log had {', '.join(first) or 'nothing'}")
    return Check(
        "log/complete",
        "G12",
        judge(bool(said), control=len(first) < len(found)),
        CLAIM,
        f"Found: {'; '.join(said)}." if said else f"{len(expected)} acts, as many events.",
        {"acts": len(expected), "events": len(found)},
        "Read before the other acts, the log had those on the new tenant alone: "
        f"{'no' if late else 'yes'}.",
        advice="Write the event in the transaction that makes the change.",
    )
