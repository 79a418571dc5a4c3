"""The restart suite finds quotas that do not outlast an engine, and none where all do."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from quota_server import QuotaServer
from starlette.requests import Request
from starlette.responses import Response

from saltwall_security.check import Check, Verdict
from saltwall_security.suite import Audit
from saltwall_security.suites import restart


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never comes is not waited for."""
    monkeypatch.setattr(restart, "WITHIN_S", 0.3)
    monkeypatch.setattr(restart, "POLL_S", 0.01)
    monkeypatch.setattr("saltwall_security.suites.quota.stage.LIVE_WITHIN_S", 0.2)


async def examined(server: QuotaServer) -> Check:
    """The check, on a server that restarts when it is told to."""
    async with server.running():
        target = replace(server.target(), restart=server.restart)
        async with Audit(target, "1", 60, lambda _: None) as audit:
            (check,) = [check async for check in restart.SUITE.run(audit)]
    assert server.tenants() == {"one", "two"}
    return check


async def test_quotas_that_are_taken_up_again_hold() -> None:
    """What was set is reported and enforced, and what was deleted stays so."""
    check = await examined(QuotaServer())
    assert check.verdict is Verdict.HELD, check.seen


@pytest.mark.parametrize(
    "defect",
    [
        "restarts forget quotas",
        "restarts report what they do not enforce",
        "restarts bring back what was deleted",
    ],
)
async def test_a_quota_that_is_lost_is_found(defect: str) -> None:
    """Whether it is reported or not."""
    check = await examined(QuotaServer(defect=defect))
    assert check.verdict is Verdict.FAILED, check.seen


class Late(QuotaServer):
    """It serves without any quota, until it has been asked for them some times."""

    asked: int | None = None

    def restart(self) -> None:
        super().restart()
        self.stored, self.asked = dict(self.told), 0
        self._enforce(dict.fromkeys(self.told, (0, math.inf)))

    async def _usage(self, request: Request) -> Response:
        if self.asked is not None:
            self.asked += 1
            if self.asked == 4:
                self._enforce(self.stored)
        return await super()._usage(request)

    def _enforce(self, quotas: Mapping[str, tuple[int, float]]) -> None:
        for name, (reserve, ceiling) in quotas.items():
            account = self.pool.account(name)
            account.reserve, account.ceiling = reserve, ceiling
        self.told = dict(quotas)


@pytest.mark.parametrize(("promised_s", "verdict"), [(0.0, Verdict.FAILED), (60.0, Verdict.HELD)])
async def test_an_engine_that_takes_them_up_too_late_is_found(
    monkeypatch: pytest.MonkeyPatch, promised_s: float, verdict: Verdict
) -> None:
    """Until then nobody was bounded."""
    monkeypatch.setattr(restart, "PROMISED_S", promised_s)
    monkeypatch.setattr("saltwall_security.suites.quota.stage.LIVE_WITHIN_S", 60.0)
    check = await examined(Late())
    assert check.verdict is verdict, check.seen


async def test_an_engine_that_was_not_restarted_proves_nothing() -> None:
    """It still has cached what it had."""
    check = await examined(QuotaServer(defect="restarts do nothing"))
    assert check.verdict is Verdict.INCONCLUSIVE


async def test_a_pool_too_small_to_go_beyond_the_ceiling_proves_nothing() -> None:
    """Nobody could have held more."""
    check = await examined(QuotaServer(blocks=14))
    assert check.verdict is Verdict.INCONCLUSIVE
