"""A run goes on whatever one suite does, and says what it could not test."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from raw_server import OK, RawServer
from salted_server import SaltedServer
from word_cache_server import WordCache, serving

from saltwall_security import run as run_module
from saltwall_security import server as server_module
from saltwall_security.check import Check, Verdict
from saltwall_security.errors import AuditError, Unreachable
from saltwall_security.run import SuiteResult, prepare, run
from saltwall_security.suite import Audit, Suite
from saltwall_security.target import Access, Target, Tenant

TWO = (Tenant("a"), Tenant("b"))
HELD = Check("x/held", "G1", Verdict.HELD, "It holds", "It does")


async def holds(audit: Audit) -> AsyncIterator[Check]:
    """One check that holds."""
    yield HELD


async def breaks(audit: Audit) -> AsyncIterator[Check]:
    """One check that holds, and then a fault."""
    yield HELD
    raise ValueError("sw_live_a_key")


async def waits(audit: Audit) -> AsyncIterator[Check]:
    """Says how much time it was given."""
    yield Check("x/time", None, Verdict.HELD, "", "", {"seconds": audit.seconds})


def ran(*suites: Suite, budget_s: float = 10, target: Target | None = None) -> list[SuiteResult]:
    """Runs suites that send nothing."""
    target = target or Target("http://127.0.0.1:9/v1", TWO)
    return asyncio.run(run(target, suites, budget_s, "seed", lambda *_: None))


def test_a_suite_that_breaks_leaves_doubt_about_all_it_is_about() -> None:
    """What it found stays; the next one runs."""
    broken, after = ran(Suite("x", "X", ("G1", "G2"), breaks), Suite("y", "Y", ("G3",), holds))
    assert [(check.guarantee, check.verdict) for check in broken.checks] == [
        ("G1", Verdict.HELD),
        ("G1", Verdict.INCONCLUSIVE),
        ("G2", Verdict.INCONCLUSIVE),
    ]
    assert after.verdict is Verdict.HELD


def test_a_fault_is_named_by_its_kind_and_place() -> None:
    """Not in its own words, which may quote a key."""
    (broken,) = ran(Suite("x", "X", ("G1",), breaks))
    assert "ValueError in test_run.py, line" in broken.checks[-1].seen
    assert "sw_live_a_key" not in broken.checks[-1].seen


def test_what_a_suite_needs_and_does_not_get_is_named() -> None:
    """It is not run, and that is no verdict."""
    needs = frozenset({Access.ENGINE, Access.OPERATOR})
    (result,) = ran(Suite("x", "X", ("G1",), holds, needs=needs))
    assert result.verdict is Verdict.NOT_TESTED
    assert "engine, operator" in result.checks[0].seen


def test_the_budget_is_shared_and_what_is_left_is_passed_on() -> None:
    """By the suites' shares; a suite that takes no time leaves its part to the others."""
    large, small = Suite("x", "X", (), waits, share=3), Suite("y", "Y", (), waits, share=1)
    first, second = ran(large, small, budget_s=100)
    assert float(str(first.checks[0].figures["seconds"])) == pytest.approx(75, abs=1)
    assert float(str(second.checks[0].figures["seconds"])) == pytest.approx(100, abs=1)


async def dawdles(audit: Audit) -> AsyncIterator[Check]:
    """Takes longer than it was given."""
    await asyncio.sleep(audit.left_s + 0.05)
    yield HELD


def test_a_suite_that_takes_longer_takes_nothing_from_those_after_it() -> None:
    """Which would otherwise have too few samples."""
    slow = Suite("x", "X", (), dawdles, least_s=0.0)
    _, after = ran(slow, Suite("y", "Y", (), waits, least_s=0.0), budget_s=0.1)
    assert float(str(after.checks[0].figures["seconds"])) == pytest.approx(0.05)


def test_where_all_need_more_than_the_budget_each_gets_what_it_needs() -> None:
    """And time that is left over is saved."""
    suites = [Suite(name, "", (), waits, least_s=30) for name in "xyz"]
    results = ran(*suites, budget_s=10)
    assert [result.checks[0].figures["seconds"] for result in results] == [30, 30, 30]


def test_the_model_is_the_first_that_is_listed() -> None:
    """Unless one is asked for."""
    with serving(WordCache()) as server:
        assert asyncio.run(prepare(Target(server.url, TWO))).model == "words"


@pytest.mark.parametrize(("count", "said"), [(2, "'m1'"), (200, "'m4' and 195 more")])
async def test_of_a_long_list_of_models_some_are_named(count: int, said: str) -> None:
    """Whoever mistyped one must still see the message."""
    async with SaltedServer(models=tuple(f"m{number}" for number in range(count))).running() as at:
        with pytest.raises(AuditError, match=f"may not use the model 'n', but 'm0', .*{said}$"):
            await prepare(replace(at.target(), model="n"))


def test_one_tenant_is_not_enough() -> None:
    """There is nobody to spy on."""
    with pytest.raises(AuditError, match="two tenants are needed"):
        asyncio.run(prepare(Target("http://127.0.0.1:9/v1", TWO[:1])))


async def hangs(audit: Audit) -> AsyncIterator[Check]:
    """One check that holds, and then nothing more."""
    yield HELD
    await asyncio.Event().wait()


def test_a_suite_that_does_not_end_is_ended() -> None:
    """A target that never answers must not stop the run; what was found stays, with doubt."""
    endless = Suite("x", "X", ("G1",), hangs, least_s=0.0, patience_s=0.0)
    result, after = ran(endless, Suite("y", "Y", ("G3",), holds), budget_s=0.1)
    assert [check.verdict for check in result.checks] == [Verdict.HELD, Verdict.INCONCLUSIVE]
    assert "it had not ended after" in result.checks[1].seen
    assert after.verdict is Verdict.HELD


async def test_a_server_that_does_not_end_its_answer_is_not_attacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However steadily it comes."""
    monkeypatch.setattr(run_module, "PREPARES_S", 0.1)
    async with RawServer(OK + b"\r\n", b" ", 0.02).running() as server:
        with pytest.raises(Unreachable, match="does not answer"):
            await prepare(Target(server.url, TWO))


async def test_a_version_that_does_not_end_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody says which server it is."""
    monkeypatch.setattr(server_module, "TIMEOUT_S", 0.1)
    async with RawServer(OK + b"\r\n", b" ", 0.02).running() as server:
        assert await server_module.server_version(Target(server.url, TWO)) is None


@pytest.mark.parametrize(("owner", "name"), [("vllm", "vLLM 1.2"), ("acme", "version 1.2")])
async def test_only_who_lists_models_of_vllm_is_called_so(owner: str, name: str) -> None:
    """Others have a route of that name, too."""
    answer = f'{{"version": "1.2", "data": [{{"id": "m", "owned_by": "{owner}"}}]}}'.encode()
    head = OK + f"content-length: {len(answer)}\r\nconnection: close\r\n\r\n".encode()
    async with RawServer(head + answer).running() as server:
        assert await server_module.server_version(Target(server.url, TWO)) == name
