"""The timing suite against a real server that leaks, or does not, in a known way."""

import asyncio
from collections.abc import Mapping

import pytest
from prefix_server import PrefixServer

from saltwall_security.check import Check, Verdict
from saltwall_security.prober import Refused
from saltwall_security.suite import Audit
from saltwall_security.suites.timing import SUITE
from saltwall_security.suites.timing.comparison import PAIRS, visible_shift
from saltwall_security.target import Target, Tenant


async def audited(server: PrefixServer, seconds: float = 45) -> Mapping[str, Check]:
    """The suite's checks by id, in its part of a default budget on a CPU."""
    async with server.running():
        target = Target(server.url, [Tenant("a", "key-a"), Tenant("b", "key-b")], "demo")
        async with Audit(target, "seed", seconds, lambda line: None) as audit:
            return {check.id: check async for check in SUITE.run(audit)}


@pytest.fixture(scope="module")
def leaking() -> Mapping[str, Check]:
    """An audit of a server whose cache all tenants share."""
    return asyncio.run(audited(PrefixServer(shared=True)))


def test_a_shared_cache_is_found_early(leaking: Mapping[str, Check]) -> None:
    """Long before the number of samples that it takes to say that there is no leak."""
    check = leaking["timing/first-token"]
    assert check.verdict is Verdict.FAILED
    assert int(str(check.figures["samples_of_each_kind"])) < PAIRS


async def test_a_cache_that_leaks_now_and_then_is_found() -> None:
    """Half of the lookups find what others have cached."""
    server = PrefixServer(shared=True, leaking=0.5)
    assert (await audited(server))["timing/first-token"].verdict is Verdict.FAILED


async def test_a_cache_that_delays_what_is_anothers_is_found() -> None:
    """Nothing is shared, but that another has cached a prompt shows: it takes 150 ms longer."""
    check = (await audited(PrefixServer(foreign_s=0.15)))["timing/first-token"]
    assert check.verdict is Verdict.FAILED
    assert float(str(check.figures["later_p"])) < float(str(check.figures["sooner_p"]))


async def test_a_cache_of_each_tenants_own_holds() -> None:
    """By an audit that could have seen a leak in half of the probes."""
    check = (await audited(PrefixServer()))["timing/first-token"]
    assert check.verdict is Verdict.HELD
    part = check.figures["smallest_visible_part"]
    assert isinstance(part, float)
    assert part <= 0.5
    shift = check.figures["smallest_visible_shift_s"]
    assert isinstance(shift, float)
    assert f"one that gains {1000 * shift:.1f} ms" in check.seen


def test_the_shift_that_parts_distributions_is_found() -> None:
    """Of a hundred times, a millisecond apart, forty lie within forty milliseconds."""
    fresh = [0.5 + number / 1000 for number in range(100)]
    assert visible_shift(fresh, 0.395) == pytest.approx(0.04, abs=2e-3)
    assert visible_shift(fresh, 1.0) == pytest.approx(0.099, abs=2e-3)


async def test_no_cache_is_no_pass() -> None:
    """Where a tenant's own prompts are no faster the second time, nothing can be said."""
    check = (await audited(PrefixServer(caches=False), seconds=20))["timing/first-token"]
    assert check.verdict is Verdict.INCONCLUSIVE
    assert "tells nothing" in check.seen


async def test_too_little_time_is_no_pass_and_says_how_much_it_takes() -> None:
    """The number of samples, and seconds."""
    check = (await audited(PrefixServer(), seconds=15))["timing/first-token"]
    assert check.verdict is Verdict.INCONCLUSIVE
    assert f"takes {check.figures['samples_needed']} samples of each kind" in check.seen


def test_load_is_reported_and_decides_nothing(leaking: Mapping[str, Check]) -> None:
    """A prompt of the victim's delays the spy's tokens the more, the less of it is cached."""
    channels = [leaking["timing/load-in-token-gaps"], leaking["timing/load-in-queueing"]]
    assert [check.verdict for check in channels] == [Verdict.FAILED] * 2
    assert [check.guarantee for check in channels] == [None] * 2


def test_samples_of_both_kinds_and_of_the_control_are_plotted(
    leaking: Mapping[str, Check],
) -> None:
    """So that a reader can see what the figures say."""
    assert [len(plot.series) for plot in leaking["timing/first-token"].plots] == [3]


async def test_a_server_that_refuses_stops_the_suite_with_what_it_said() -> None:
    """A run then has no verdict on it."""
    with pytest.raises(Refused, match="429: too many requests"):
        await audited(PrefixServer(refuses_after=20))
