"""G11: what attackers leave behind when they hang up."""

from collections.abc import Sequence

from saltwall_security.check import Check, Verdict, judge
from saltwall_security.engine_control import Account
from saltwall_security.suites.eviction.trial import Trial

NAME, GUARANTEE = "eviction/nothing-left", "G11"
CLAIM = "Attackers that hang up leave nothing: no request that runs or waits, no pinned block."


def remains_check(trials: Sequence[Trial]) -> Check:
    """G11: what the engine does and holds for attackers that have gone."""
    told = [
        (trial, trial.during, trial.remains)
        for trial in trials
        if trial.during is not None and trial.remains is not None
    ]
    if not told:
        said = "Not seen: it takes the engine's control secret, and the attackers' ids."
        return Check(NAME, GUARANTEE, Verdict.NOT_TESTED, CLAIM, said)
    left = [trial for trial, _, remains in told if remains != Account()]
    busiest = max(during.pinned for _, during, _ in told)
    requests = sum(remains.requests for _, _, remains in told)
    pinned = sum(remains.pinned for _, _, remains in told)
    names = ", ".join(trial.strategy.name for trial in left) or "none"
    return Check(
        NAME,
        GUARANTEE,
        judge(bool(left), busiest > 0),
        CLAIM,
        f"After {len(told)} attacks {requests} requests and {pinned} pinned blocks were left"
        f" (attacks that left any: {names}).",
        {"attacks": len(told), "requests_left": requests, "blocks_pinned_left": pinned},
        f"Under attack it pinned up to {busiest} blocks for them.",
    )
