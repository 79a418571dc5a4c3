"""The quota suite finds every limit that is not kept, and none where all are."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from quota_server import QuotaServer, Unbounded

from saltwall_security.check import Check, Verdict
from saltwall_security.errors import AuditError
from saltwall_security.suite import Audit
from saltwall_security.suites.quota import SUITE, books, limits, promises, revocation, stage


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never comes is not waited for."""
    monkeypatch.setattr(limits, "LIVE_WITHIN_S", 0.2)
    monkeypatch.setattr(stage, "LIVE_WITHIN_S", 0.2)
    monkeypatch.setattr(revocation, "LIVE_WITHIN_S", 0.2)
    monkeypatch.setattr(revocation, "FAILS_S", 0.2)
    monkeypatch.setattr(promises, "MISFIT_WITHIN_S", 0.2)
    monkeypatch.setattr(books, "ZERO_WITHIN_S", 0.2)
    monkeypatch.setattr(books, "LONG", 40)


async def audited(server: QuotaServer) -> Mapping[str, Check]:
    """All of the suite's checks, by name."""
    async with server.running(), Audit(server.target(), "1", 60, lambda _: None) as audit:
        return {check.id.partition("/")[2]: check async for check in SUITE.run(audit)}


Part = Callable[[stage.Stage], AsyncIterator[Check]]


async def examined(server: QuotaServer, part: Part, seconds: float = 60) -> Mapping[str, Check]:
    """The checks of one part."""
    async with server.running(), Audit(server.target(), "1", seconds, lambda _: None) as audit:
        operator: Any = audit.target.operator
        async with stage.staged(audit, operator) as at:
            return {check.id.partition("/")[2]: check async for check in part(at)}


async def misfit(at: stage.Stage) -> AsyncIterator[Check]:
    yield await promises.check_misfit(at)


async def accounting(at: stage.Stage) -> AsyncIterator[Check]:
    yield await books.check_books(at)


async def suspension(at: stage.Stage) -> AsyncIterator[Check]:
    yield await revocation.check_revocation(at)


async def longer_prompts(at: stage.Stage) -> AsyncIterator[Check]:
    """As where words are of more tokens than was estimated."""
    async for check in promises.check_promises(replace(at, tokens_per_word=0.9)):
        yield check


async def test_kept_limits_hold() -> None:
    """Every check holds on a server that keeps what it is told."""
    checks = await audited(QuotaServer())
    assert {name: check.seen for name, check in checks.items() if check.verdict != "held"} == {}
    assert checks.keys() == {
        *("ceiling", "reported", "misfit", "oversold", "reserve", "accounting", "revocation")
    }


async def test_cached_blocks_beyond_the_ceiling_are_found() -> None:
    """A ceiling that counts only what requests pin is no ceiling."""
    server = QuotaServer()
    server.pool = Unbounded(server.blocks, True)
    checks = await examined(server, limits.check_limits)
    assert checks["ceiling"].verdict is Verdict.FAILED


@pytest.mark.parametrize(
    ("defect", "part", "check"),
    [
        ("lowered ceilings evict nothing", limits.check_limits, "ceiling"),
        ("deleted ceilings stay", limits.check_limits, "reported"),
        ("reports stand still", limits.check_limits, "reported"),
        ("misfits wait", misfit, "misfit"),
        ("promises too much", promises.check_promises, "oversold"),
        ("aborts keep their blocks", accounting, "accounting"),
        ("refused quotas delay revocations", suspension, "revocation"),
    ],
)
async def test_a_defect_is_found(defect: str, part: Part, check: str) -> None:
    """By the check whose claim it breaks."""
    checks = await examined(QuotaServer(defect=defect), part)
    assert checks[check].verdict is Verdict.FAILED, checks[check].seen


async def test_a_reserve_that_is_not_kept_is_found() -> None:
    """A flood evicts what the tenant has cached within it."""
    checks = await examined(QuotaServer(keeps=False), promises.check_promises)
    assert checks["reserve"].verdict is Verdict.FAILED


async def test_a_pool_too_small_to_go_beyond_the_ceiling_tells_nothing() -> None:
    """Where not even a tenant without a ceiling can hold more, ceilings are not seen to hold."""
    checks = await examined(QuotaServer(blocks=18), limits.check_limits)
    assert checks["ceiling"].verdict is Verdict.INCONCLUSIVE


async def test_changes_that_there_was_no_time_for_prove_nothing() -> None:
    """Neither what is enforced after them, nor what is reported."""
    checks = await examined(QuotaServer(), limits.check_limits, seconds=0)
    assert {check.verdict for check in checks.values()} == {Verdict.INCONCLUSIVE}
    assert all("no time for more: set, deleted" in check.seen for check in checks.values())


async def test_prompts_that_are_longer_than_meant_stay_within_the_reserve() -> None:
    """Else the flood would rightly take what is above it."""
    checks = await examined(QuotaServer(blocks=640), longer_prompts)
    assert checks["reserve"].verdict is Verdict.HELD, checks["reserve"].seen


async def test_a_command_that_fails_refuses_nothing() -> None:
    """Nor is that a promise of too much."""
    checks = await examined(QuotaServer(defect="commands fail"), promises.check_promises)
    assert checks["oversold"].verdict is Verdict.INCONCLUSIVE


async def test_where_no_engine_can_be_oversold_nothing_is_delayed() -> None:
    """As over ssh, where the command asks the engines all the same."""
    checks = await examined(QuotaServer(defect="asks engines always"), suspension)
    assert checks["revocation"].verdict is Verdict.NOT_TESTED


async def test_replicas_are_attacked_one_at_a_time() -> None:
    """What one of them counts is not all that a tenant has."""
    with pytest.raises(AuditError, match="2 engines share a model's requests"):
        await audited(QuotaServer(replicas=2))


async def test_without_cached_tokens_nothing_is_measured() -> None:
    """What the platform says of itself is no measurement; the books can be read still."""
    checks = await audited(QuotaServer(shown=False))
    verdicts = {name: check.verdict for name, check in checks.items()}
    for name in ("ceiling", "reported", "reserve"):
        assert verdicts[name] is Verdict.INCONCLUSIVE
    assert verdicts["accounting"] is Verdict.HELD
