"""G11: what attackers leave behind when they hang up."""

from collections.abc import Sequence

from saltwall_security.check import Check, judge
from saltwall_security.suites.eviction.pool import Remains
from saltwall_security.suites.eviction.trial import Trial


def remains_check(trials: Sequence[Trial]) -> Check | None:
    """G11: what the engine does and holds for attackers that have gone; None if it cannot tell."""
    told = [trial for trial in trials if trial.remains is not None and trial.during is not None]
    if not told:
        return None
    left = [trial for trial in told if trial.remains != Remains(0, 0)]
    busiest = max((trial.during.pinned for trial in told if trial.during), default=0)
    requests = sum(trial.remains.requests for trial in told if trial.remains)
    pinned = sum(trial.remains.pinned for trial in told if trial.remains)
    names = ", ".join(trial.strategy.name for trial in left) or "none"
    return Check(
        "eviction/nothing-left",
        "G11",
        judge(bool(left), busiest > 0),
        "Attackers that hang up leave nothing: no request that runs or waits, no pinned block.",
        f"After {len(told)} attacks {requests} requests and {pinned} pinned blocks were left"
        f" (attacks that left any: {names}).",
        {"attacks": len(told), "requests_left": requests, "blocks_pinned_left": pinned},
        f"Under attack it pinned up to {busiest} blocks for them.",
    )
