"""An attack is blamed only for what was served before it, and is not after it."""

from collections.abc import Sequence

import pytest

from saltwall_security import still_served as module
from saltwall_security.check import Verdict
from saltwall_security.still_served import still_served

GOOD, BROKEN, LIMITED = [200, 200], [200, "ReadError"], [429, 200]


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (GOOD, [GOOD], Verdict.HELD),
        (GOOD, [BROKEN, GOOD], Verdict.HELD),
        (GOOD, [BROKEN, BROKEN], Verdict.FAILED),
        (GOOD, [LIMITED, LIMITED], Verdict.INCONCLUSIVE),
        (GOOD, [[None, 429], [None, 429]], Verdict.FAILED),
        (BROKEN, [BROKEN, BROKEN], Verdict.INCONCLUSIVE),
    ],
    ids=["served", "once broken", "broken", "limited", "limited and dead", "broken before"],
)
async def test_the_verdict(
    before: Sequence[int | str],
    after: Sequence[Sequence[int | str | None]],
    verdict: Verdict,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was not served is asked for once more; a spent limit leaves doubt."""
    monkeypatch.setattr(module, "AGAIN_S", 0)
    monkeypatch.setattr(module, "PATIENCE_S", 0)
    answers = iter(after)

    async def ask() -> Sequence[int | str | None]:
        return next(answers)

    assert (await still_served(before, ask))[0] is verdict


@pytest.mark.parametrize(
    ("after", "patience_s", "verdict"),
    [
        ([[503, None]] * 3 + [GOOD], 60, Verdict.HELD),
        ([[503, None]] * 2, 0, Verdict.INCONCLUSIVE),
        ([[503, 401]] * 2, 0, Verdict.FAILED),
    ],
    ids=["restarted", "gone", "refused"],
)
async def test_a_target_that_is_restarted_is_waited_for(
    after: Sequence[Sequence[int | str | None]],
    patience_s: float,
    verdict: Verdict,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where no answer need not be the attack's work, only a refusal is a failure."""
    monkeypatch.setattr(module, "AGAIN_S", 0)
    monkeypatch.setattr(module, "PATIENCE_S", patience_s)
    answers = iter(after)

    async def ask() -> Sequence[int | str | None]:
        return next(answers)

    assert (await still_served(GOOD, ask, Verdict.INCONCLUSIVE))[0] is verdict
