"""Quotas beside what engines enforce: as JSON has it, and as tables for people."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from saltwall_platform.engine_reports import EngineReport
from saltwall_tenants.tenants import Tenant
from saltwall_tenants.wire import AmountError, Capacity, Quota
from saltwall_tenants.wire.amount import plain, readable_bytes
from saltwall_tenants.wire.quota import check_reserves

UNHEARD_OF: Mapping[str, Any] = {
    "pinned": 0,
    "idle": 0,
    "held": 0,
    "reserve": 0,
    "ceiling": None,
    "weight": 1.0,
    "store": True,
}
"""What an engine holds a tenant to that it has not heard of."""

SIZES = ("reserve", "ceiling", "held", "pinned", "idle")
NO_CEILING = "none"
_SAID = {"store": "caching", "stored": "quota_set"}
"""What people read instead of a field's name."""
Units = dict[str, Any]


def units(blocks: int | None, capacity: Capacity) -> Units | None:
    """An engine's blocks in every unit; None for no bound."""
    if blocks is None:
        return None
    return {
        "blocks": blocks,
        "tokens": capacity.tokens(blocks),
        "percent": plain(capacity.percent(blocks)),
        "bytes": capacity.bytes_(blocks),
    }


def amounts(quota: Quota, reports: Sequence[EngineReport]) -> list[dict[str, Any]]:
    """What a quota comes to on each engine that could be asked."""
    found: list[dict[str, Any]] = []
    for report in reports:
        if report.capacity is None:
            found.append({"engine": report.label, "problem": report.problem})
            continue
        try:
            share = quota.blocks(report.capacity)
        except AmountError as error:
            found.append({"engine": report.label, "problem": str(error)})
            continue
        found.append(
            {
                "engine": report.label,
                "reserve": units(share.reserve, report.capacity),
                "ceiling": units(share.ceiling, report.capacity),
            }
        )
    return found


def enforced(tenant: Tenant, quota: Quota, reports: Sequence[EngineReport]) -> list[dict[str, Any]]:
    """What each engine holds a tenant to and what it holds there, beside what is stored."""
    found = []
    for report, wanted in zip(reports, amounts(quota, reports), strict=True):
        if report.capacity is None:
            found.append(wanted)
            continue
        told = {**UNHEARD_OF, **report.tenants.get(tenant.id.hex, {})}
        now = {name: units(told[name], report.capacity) for name in SIZES}
        now |= {"weight": told["weight"], "store": told["store"]}
        found.append({"engine": report.label, "stored": wanted, "now": now})
    return found


def listed(rows: Sequence[Mapping[str, Any]], *, every_unit: bool) -> list[dict[str, Any]]:
    """The lines of the table: an amount a line in every unit, or a tenant a line in blocks."""
    lines = []
    for row in rows:
        asked = [engine for engine in row["engines"] if "now" in engine]
        if every_unit:
            lines += [line for engine in asked for line in _amount_lines(engine)]
        elif asked:
            lines += [_tenant_line(row, engine) for engine in asked]
        else:
            lines.append(_tenant_line(row, None))
    return lines


def problems(reports: Sequence[EngineReport]) -> list[str]:
    """Which engines could not be asked, and why."""
    return [f"engine {report.label}: {report.problem}" for report in reports if report.problem]


def readable(row: Mapping[str, Any]) -> dict[str, Any]:
    """A stored quota for people: a ceiling that is not there, and what is cached, in words."""
    none = "= reserve" if row["strict"] else NO_CEILING
    said = {"ceiling": none if row["ceiling"] is None else row["ceiling"]}
    said |= {"store": "on" if row["store"] else "off"}
    return {_SAID.get(name, name): value for name, value in {**row, **said}.items()}


def refusal(stored: Mapping[str, Quota], capacity: Capacity) -> str:
    """Why an engine refuses what is stored, and what to do; empty when it does not.

    An engine takes the quotas of all tenants or none. `stored` is by the tenant's name.
    """
    reserves = {}
    for name, quota in stored.items():
        try:
            reserves[name] = quota.blocks(capacity).reserve
        except AmountError as error:
            return f"{name}: {error}. Change it: saltwall quota set {name}"
    try:
        check_reserves(reserves, capacity.blocks)
    except AmountError as error:
        most = max(reserves, key=lambda name: reserves[name])
        return f"{error}. Lower one: saltwall quota set {most} --reserve AMOUNT"
    return ""


def refused(label: str, why: str) -> str:
    """The line that says that an engine refuses what is stored."""
    return f"engine {label} refuses all quotas and keeps its former ones: {why}"


def notes(quota: Quota, stored: Mapping[str, Quota], reports: Sequence[EngineReport]) -> list[str]:
    """What to know of a quota that was just stored, beside what it comes to."""
    lines = []
    for report in reports:
        label, capacity = report.label, report.capacity
        if capacity is None:
            lines.append(
                f"stored, but not checked on engine {label} ({report.problem}): if it does not fit"
                " there, that engine refuses the quotas of all tenants; see saltwall quota show"
                " once it runs"
            )
        elif why := refusal(stored, capacity):
            lines.append(refused(label, why))
        else:
            mine = quota.blocks(capacity)
            taken = sum(each.reserve.blocks(capacity) for each in stored.values())
            if mine.reserve and taken == capacity.blocks:
                lines.append(
                    f"note: this leaves 0 blocks on {label} for tenants without a reserve:"
                    " their requests are refused"
                )
            if mine.ceiling is not None and mine.ceiling > capacity.blocks:
                lines.append(
                    f"note: the ceiling is more than engine {label} has ({capacity.blocks} blocks):"
                    " no bound there"
                )
    return lines


def differences(
    rows: Sequence[Mapping[str, Any]], stored: Mapping[str, Quota], reports: Sequence[EngineReport]
) -> list[str]:
    """Which engines enforce something else than what is stored, and why."""
    others = Counter(
        engine["engine"]
        for row in rows
        for engine in row["engines"]
        if "now" in engine
        and (
            any(
                engine["stored"].get(name) != engine["now"][name] for name in ("reserve", "ceiling")
            )
            or (engine["now"]["store"], engine["now"]["weight"])
            != (row["store"], float(row["weight"]))
        )
    )
    lines = []
    for report in reports:
        label, count = report.label, others[report.label]
        if not count or report.capacity is None:
            continue
        if why := refusal(stored, report.capacity):
            lines.append(refused(label, why))
            continue
        lines.append(
            f"engine {label} enforces other quotas for {count} tenant{'' if count == 1 else 's'}:"
            " the change may still be under way: ask again, and if it stays, see the gateway's log"
        )
    return lines


def effective(quota: Quota, reports: Sequence[EngineReport]) -> list[dict[str, Any]]:
    """The lines that say what a quota comes to on each engine, in every unit."""
    return [
        {"engine": each["engine"], "amount": name, **_in_units(each[name])}
        for each in amounts(quota, reports)
        for name in ("reserve", "ceiling")
        if "problem" not in each
    ]


def _amount_lines(engine: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "engine": engine["engine"],
            "amount": name,
            "stored": _stored_blocks(engine["stored"], name),
            **_in_units(engine["now"][name]),
        }
        for name in SIZES
    ]


def _in_units(size: Units | None) -> dict[str, Any]:
    if size is None:
        return dict.fromkeys(("blocks", "tokens", "percent", "bytes"), NO_CEILING)
    shown = None if size["bytes"] is None else readable_bytes(size["bytes"])
    return {**size, "percent": f"{size['percent']}%", "bytes": shown}


def _stored_blocks(stored: Mapping[str, Any], name: str) -> int | str:
    """What the stored quota comes to; an engine's own counts have no counterpart."""
    if name not in ("reserve", "ceiling"):
        return ""
    if "problem" in stored:
        return "?"
    return stored[name]["blocks"] if stored[name] else NO_CEILING


def _tenant_line(row: Mapping[str, Any], engine: Mapping[str, Any] | None) -> dict[str, Any]:
    names = ("tenant", "reserve", "ceiling", "weight", "strict", "caching")
    said = readable(row)
    line = {name: said[name] for name in names}
    line["engine"] = engine["engine"] if engine else None
    for name in SIZES:
        line[f"{name}_now_(blocks)"] = _in_units(engine["now"][name])["blocks"] if engine else None
    return line
