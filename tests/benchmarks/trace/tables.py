"""The comparison as Markdown tables."""

from collections.abc import Callable, Mapping, Sequence

from sharing import LEAST_OF_ONE_LRU, LEAST_OF_RESERVE_ALONE, Comparison

Results = Mapping[tuple[str, float], Comparison]
"""By mode and pool (a fraction of the trace's distinct blocks)."""


def markdown(results: Results, modes: Mapping[str, str], ceiling: float) -> str:
    """Tables of all results.

    Args:
        results: what was measured.
        modes: a heading for each mode.
        ceiling: the hit rate of a pool that holds everything.
    """
    parts = []
    for mode, heading in modes.items():
        chosen = {pool: c for (m, pool), c in results.items() if m == mode}
        parts += [f"**{heading}.** Prompt blocks found cached:", _aggregate(chosen)]
        if any("reserve alone" in c.served for c in chosen.values()):
            parts += [
                "Each tenant, all its requests: one LRU · elastic · its reserve alone.",
                _by_tenant(chosen),
            ]
    parts += [f"A pool that holds everything: {ceiling:.1%}.", *_verdict(results)]
    return "\n\n".join(parts)


def _aggregate(chosen: Mapping[float, Comparison]) -> str:
    names = [n for n in next(iter(chosen.values())).served if n != "reserve alone"]
    columns: dict[str, Callable[[Comparison], str]] = {
        "blocks": lambda c: f"{c.capacity.total:,}",
        **{name: lambda c, name=name: _rate(c, name) for name in names},
        "elastic / one LRU": lambda c: f"**{c.over_one_lru('elastic'):.3f}**",
        "static / one LRU": lambda c: f"{c.over_one_lru('static'):.3f}",
    }
    if any(c.worst() is not None for c in chosen.values()):
        columns["worst tenant: elastic / reserve alone"] = lambda c: (
            "–" if (worst := c.worst()) is None else f"**{worst:.3f}**"
        )
    rows = [
        [f"{pool:.0%}", *(cell(comparison) for cell in columns.values())]
        for pool, comparison in chosen.items()
    ]
    return _table(["pool", *columns], rows)


def _rate(comparison: Comparison, strategy: str) -> str:
    hits = comparison.hits(strategy)
    notes = [f"{hits.refused:,} refused"] * bool(hits.refused)
    notes += [f"{hits.waited:,.0f} s wait"] * (hits.waited >= 0.5)
    return f"{hits.rate:.1%}" + (f" ({', '.join(notes)})" if notes else "")


def _by_tenant(chosen: Mapping[float, Comparison]) -> str:
    tenants = next(iter(chosen.values())).tenants
    rows = []
    for tenant in tenants:
        row = [str(tenant + 1)]
        for comparison in chosen.values():
            rates = [
                f"{comparison.hits(name, tenant).rate:.1%}"
                for name in ("one LRU", "elastic", "reserve alone")
            ]
            row.append(" · ".join(rates))
        hits = comparison.hits("elastic", tenant)
        rows.append([*row[:1], f"{hits.requests:,}", *row[1:]])
    return _table(["tenant", "requests", *(f"{pool:.0%}" for pool in chosen)], rows)


def _verdict(results: Results) -> list[str]:
    missed = [
        f"Goal missed, {mode}, pool of {pool:.0%}: {what}."
        for (mode, pool), comparison in results.items()
        for what in comparison.missed_goals()
    ]
    return missed or [
        f"Goals met: elastic keeps at least {LEAST_OF_ONE_LRU} of one LRU's hit rate, and each "
        f"tenant at least {LEAST_OF_RESERVE_ALONE} of what its reserve alone gives it."
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *rows])
