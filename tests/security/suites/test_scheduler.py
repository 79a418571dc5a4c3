"""The verdict over what an attack saw of a scheduler and of stock vLLM's."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from saltwall_security import run
from saltwall_security.bench.process import BenchFailed
from saltwall_security.check import Verdict
from saltwall_security.suites import scheduler
from saltwall_security.suites.scheduler import SUITE, Seen
from saltwall_security.target import Target


def sighting(leak: bool, control: bool | None = None, applies: bool = True) -> dict[str, Any]:
    return {
        "leak": leak,
        "seen": "took all" if leak else "took nothing",
        "figures": {},
        "control": control,
        "applies": applies,
    }


def verdict(
    sightings: list[dict[str, Any]], stock: list[dict[str, Any]], failure: str | None = None
) -> Verdict:
    seen = Seen("reserve")
    seen.sightings, seen.stock, seen.failure = sightings, stock, failure
    return seen.check().verdict


CLEAN, LEAK, UNSTAGED = sighting(False), sighting(True), sighting(False, control=False)


def test_what_stock_gives_in_to_and_the_target_does_not_is_held() -> None:
    """In all runs."""
    assert verdict([CLEAN, CLEAN], [LEAK]) == Verdict.HELD


def test_one_leak_of_many_runs_fails() -> None:
    """Whatever else there is."""
    assert verdict([CLEAN, LEAK, CLEAN], [LEAK]) == Verdict.FAILED
    assert verdict([LEAK], [], "it died") == Verdict.FAILED


@pytest.mark.parametrize("stock", [[], [CLEAN]])
def test_an_attack_that_stock_withstands_proves_nothing(stock: list[dict[str, Any]]) -> None:
    """Nor one that could not be made there."""
    assert verdict([CLEAN, CLEAN], stock) == Verdict.INCONCLUSIVE


def test_an_attack_that_is_its_own_control_needs_no_stock() -> None:
    """It saw what there was to see on the target itself."""
    assert verdict([sighting(False, control=True)], [CLEAN]) == Verdict.HELD


def test_an_attack_that_did_not_come_about_proves_nothing() -> None:
    """Not even if stock gives in."""
    assert verdict([CLEAN, UNSTAGED], [LEAK]) == Verdict.INCONCLUSIVE


def test_a_run_that_failed_leaves_doubt() -> None:
    """As when the scheduler raised or hung."""
    assert verdict([CLEAN], [LEAK], "it took more than 60 seconds") == Verdict.INCONCLUSIVE
    assert verdict([], [LEAK], "it died") == Verdict.INCONCLUSIVE


def test_what_the_scheduler_has_no_notion_of_is_not_tested() -> None:
    """Such as tickets on stock vLLM."""
    assert verdict([sighting(False, applies=False)], []) == Verdict.NOT_TESTED


class Unbuilt:
    """As where the package is not installed."""

    async def version(self) -> str:
        raise BenchFailed("no module named acme_scheduler")


async def test_a_scheduler_that_cannot_be_built_leaves_doubt_about_each_guarantee(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that no run which asked for the suite ends as a pass."""

    @asynccontextmanager
    async def benches(schedulers: object, seed: str) -> AsyncIterator[Mapping[str, Unbuilt]]:
        yield {"target": Unbuilt(), "stock": Unbuilt()}

    monkeypatch.setattr(scheduler, "Benches", benches)
    target = Target("http://127.0.0.1:9/v1", (), scheduler="acme_scheduler:Scheduler")
    (found,) = await run.run(target, [SUITE], 1.0, "tests", lambda *_: None)
    assert {check.guarantee for check in found.checks} == set(SUITE.guarantees)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "no module named acme_scheduler" in found.checks[0].seen
