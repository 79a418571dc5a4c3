"""The rotation suite finds every way in which an old salt's cache lives on, and none if it dies."""

from collections.abc import Mapping

import pytest
from quota_server import QuotaServer

from saltwall_security.check import Check, Verdict
from saltwall_security.suite import Audit
from saltwall_security.suites.rotation import SUITE, erasure, reach


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never comes is not waited for, and what runs need not run for long."""
    monkeypatch.setattr(reach, "MOST_TOKENS", 400)
    monkeypatch.setattr(reach, "CUT_WITHIN_S", 0.2)
    monkeypatch.setattr(erasure, "WITHIN_S", 0.2)


async def audited(server: QuotaServer, *, told: bool = True) -> Mapping[str, Check]:
    """The suite's checks, by name."""
    async with server.running(), Audit(server.target(told=told), "1", 60, lambda _: None) as audit:
        return {check.id.partition("/")[2]: check async for check in SUITE.run(audit)}


async def test_rotation_as_promised_holds() -> None:
    """All that can be seen from outside holds; without a process, memory is not tested."""
    checks = await audited(QuotaServer(token_s=2e-3))
    assert {name: check.verdict for name, check in checks.items()} == {
        "unreachable": Verdict.HELD,
        "grace": Verdict.HELD,
        "cut": Verdict.HELD,
        "suspended": Verdict.HELD,
        "purged": Verdict.HELD,
        "deleted": Verdict.HELD,
        "erased": Verdict.NOT_TESTED,
    }, {name: check.seen for name, check in checks.items()}


@pytest.mark.parametrize(
    ("defect", "found"),
    [
        ("one salt for ever", "unreachable"),
        ("grace is ignored", "grace"),
        ("no grace is ignored", "cut"),
        ("suspension keeps the cache", "suspended"),
        ("purges do nothing", "purged"),
        ("deletion keeps the cache", "deleted"),
    ],
)
async def test_a_defect_is_found(defect: str, found: str) -> None:
    """By the check whose claim it breaks."""
    checks = await audited(QuotaServer(token_s=2e-3, defect=defect))
    assert checks[found].verdict is Verdict.FAILED, checks[found].seen


async def test_without_the_control_secret_the_rest_is_tested() -> None:
    """Purge and deletion need somebody who counts blocks."""
    checks = await audited(QuotaServer(token_s=2e-3), told=False)
    untested = {name for name, check in checks.items() if check.verdict is Verdict.NOT_TESTED}
    assert untested == {"purged", "deleted", "erased"}
    assert checks["unreachable"].verdict is Verdict.HELD


async def test_without_cached_tokens_nothing_is_told() -> None:
    """Whether a prompt hits cannot be seen then; deletion is seen in the engine's counts."""
    checks = await audited(QuotaServer(token_s=2e-3, shown=False))
    assert checks["unreachable"].verdict is Verdict.INCONCLUSIVE
    assert checks["deleted"].verdict is Verdict.HELD
