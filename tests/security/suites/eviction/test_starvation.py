"""When a tenant's waiting is starvation."""

from collections.abc import Sequence
from typing import Any

import pytest

from saltwall_security.check import Verdict
from saltwall_security.prober import Prober, Refused
from saltwall_security.suite import Audit
from saltwall_security.suites.eviction.flood import Flood
from saltwall_security.suites.eviction.scale import Scale
from saltwall_security.suites.eviction.starvation import starvation_check
from saltwall_security.suites.eviction.strategies import STRATEGIES
from saltwall_security.suites.eviction.trial import Cold, Phase, Trial
from saltwall_security.target import Target

ALONE = [0.1, 0.11, 0.12, 0.1]


def refused(count: int, status: int | None = 503) -> list[Refused]:
    return [Refused("refused", status) for _ in range(count)]


def trial(
    waits: Sequence[float],
    *,
    attackers_s: float = 4.0,
    refused_before: int = 0,
    **attacked: Any,
) -> Trial:
    """One attack, of which the victim and the attackers waited so long (seconds)."""
    audit = Audit(Target("http://127.0.0.1:1/v1", []), "salt", 1.0, lambda line: None)
    flood = Flood(audit, Prober(), Scale(None, 3.0, 32, solo_s=0.5), STRATEGIES[0])
    flood.waits += [attackers_s]
    phase = Phase(waits=list(waits), **attacked)
    alone = Phase(waits=list(ALONE))
    before = Phase(waits=list(ALONE), refused=refused(refused_before))
    return Trial(STRATEGIES[0], before, phase, alone, flood, True, None, None, 10.0)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (trial([0.2, 0.3, 0.2]), Verdict.HELD),
        (trial([4.0, 9.0, 10.0]), Verdict.FAILED),
        (trial([0.2, 0.3, 9.0]), Verdict.HELD),
        (trial([9.0, 10.0]), Verdict.INCONCLUSIVE),
        (trial([0.2, 0.3, 0.2], attackers_s=0.5), Verdict.INCONCLUSIVE),
        (trial([4.0, 9.0, 10.0], attackers_s=30.0), Verdict.HELD),
        (trial([0.2, 0.3, 0.2], cold=Cold(25.0, 1024, 2048.0)), Verdict.HELD),
        (trial([0.2, 0.3, 0.2], cold=Cold(None, 1024, 30_000.0)), Verdict.FAILED),
        (trial([0.2], refused=refused(2)), Verdict.FAILED),
        (trial([0.2], refused=refused(2), refused_before=1), Verdict.FAILED),
        (trial([0.2], refused=refused(2), refused_before=4), Verdict.INCONCLUSIVE),
        (trial([], refused=refused(1, None)), Verdict.INCONCLUSIVE),
        (trial([0.2] * 4, refused=refused(5, 429)), Verdict.INCONCLUSIVE),
        (trial([]), Verdict.INCONCLUSIVE),
    ],
    ids=[
        "a little later",
        "far later",
        "one hiccup",
        "too few to tell",
        "attackers that do not even delay themselves",
        "a machine that delays all, and most who ask for most",
        "a long prompt that takes turns",
        "a long prompt that waits for ever",
        "turned away",
        "turned away, with one hiccup before",
        "turned away alone as well",
        "one connection that broke",
        "a limit on its own requests",
        "nothing seen",
    ],
)
def test_starvation_is_told_from_load(found: Trial, verdict: Verdict) -> None:
    """A median that is far above alone, or no answers at all; load and hiccups are neither."""
    assert starvation_check([found]).verdict is verdict
