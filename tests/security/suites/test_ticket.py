"""The ticket suite finds every way past a gateway's seal that an engine is given, and no other."""

import json
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import pytest
from pretend_platform import MODEL, Platform, PretendOperator

from saltwall_security import ending
from saltwall_security.check import Check, Verdict
from saltwall_security.errors import AuditError
from saltwall_security.raw_http import Reply
from saltwall_security.recording import Recorded, Recorder
from saltwall_security.suite import Audit
from saltwall_security.suites.ticket import SUITE, headers, sealed, standing, unsealed
from saltwall_security.suites.ticket.altered import altered, malformed, moved
from saltwall_security.suites.ticket.front import check_stolen
from saltwall_security.suites.ticket.headers import check_unsealed
from saltwall_security.suites.ticket.minted import Mint, misdirected, outdated
from saltwall_security.suites.ticket.shots import Hit, Shot, fire, refused
from saltwall_security.suites.ticket.spied import SEAL_HEADER, Spied, engines_of, ticket_of
from saltwall_security.target import Target, Tenant

HELD, FAILED = Verdict.HELD, Verdict.FAILED
SERVED = (True, "The genuine request was served")


def _nobody(line: str) -> None:
    """Hears progress and forgets it."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never ends is known not to end sooner."""
    monkeypatch.setattr(ending, "FAILS_S", 0.4)
    monkeypatch.setattr(ending, "WATCHED_S", 0.2)
    monkeypatch.setattr(headers, "BACK_WITHIN_S", 0.4)
    monkeypatch.setattr("saltwall_security.suites.ticket.doors.PATIENCE_S", 0.4)


@asynccontextmanager
async def spied(platform: Platform) -> AsyncIterator[tuple[Audit, Spied]]:
    """The platform with somebody between its gateway and its engine."""
    async with platform.serving():
        with TemporaryDirectory() as home, Recorder(platform.engine_url) as recorder:
            keys = Path(home) / "engine-demo.json"
            platform.engine_keys.write(keys)
            platform.behind = recorder.url
            async with Audit(platform.target(operated=True), "1", 60, _nobody) as audit:
                yield audit, Spied(audit.target, MODEL, keys, recorder)


async def tampered(defect: str, make: Callable[..., Sequence[Shot]]) -> Check:
    """What `make` makes of two tenants' genuine requests, on a platform with this defect."""
    platform = Platform(frozenset({defect}))
    async with spied(platform) as (audit, wire):
        one, other = [await wire.capture(who, "Salt.") for who in audit.target.tenants[:2]]
        hits = await fire(platform.engine_url, make(one, other, random.Random(1)))
    return refused("altered", "It is refused", hits, SERVED, malformed=make is _malformed)


def _altered(one: Recorded, other: Recorded, rng: random.Random) -> Sequence[Shot]:
    return altered(one, rng)


def _moved(one: Recorded, other: Recorded, rng: random.Random) -> Sequence[Shot]:
    return moved(one, other)


def _malformed(one: Recorded, other: Recorded, rng: random.Random) -> Sequence[Shot]:
    return malformed(one, rng)


async def knocked(*defects: str) -> Mapping[str, Check]:
    """The checks without genuine requests."""
    platform = Platform(frozenset(defects))
    async with platform.serving(), Audit(platform.target(), "1", 60, _nobody) as audit:
        return by_name([check async for check in unsealed(audit)])


def by_name(checks: list[Check]) -> Mapping[str, Check]:
    """Checks by the second part of their ids."""
    return {check.id.removeprefix("ticket/"): check for check in checks}


def failed(checks: Mapping[str, Check]) -> set[str]:
    """The names of those that failed."""
    return {name for name, check in checks.items() if check.verdict is FAILED}


async def test_a_sealed_engine_holds_and_nothing_secret_is_reported() -> None:
    """Knocked at and tampered with, nothing fails or is in doubt, nor are secrets in any check."""
    platform = Platform()
    async with spied(platform) as (audit, wire):
        checks = [c async for c in sealed(audit, PretendOperator(platform), wire)]
        checks += [c async for c in unsealed(audit)]
        recorded = list(wire.recorder.requests)
    assert [(c.id, c.verdict, c.seen) for c in checks if c.verdict is not HELD] == []
    secrets = [platform.engine_keys.control, *platform.keys, *map(ticket_of, recorded)]
    secrets += [request.header(SEAL_HEADER) for request in recorded]
    said = repr(checks)
    assert [secret for secret in secrets if secret in said] == []


@pytest.mark.parametrize(
    ("defect", "found"),
    [
        ("seals are for who wants", {"strangers", "bodies"}),
        ("metrics are open", {"routes", "control-secret"}),
        ("the secret is compared on a prefix", {"control-secret"}),
        ("load is passed on", {"load-headers"}),
        ("load is in a header", {"load-headers"}),
        ("request ids are passed through", {"request-ids"}),
    ],
)
async def test_one_open_door_is_found(defect: str, found: set[str]) -> None:
    """Each defect fails the checks that are about it."""
    assert failed(await knocked(defect)) == found


@pytest.mark.parametrize(
    ("name", "tells"),
    [
        ("endpoint-load-metrics", True),
        ("X-Engine-Requests", True),
        ("x-kv_cache-usage", True),
        ("x-gpu-utilization", True),
        ("x-download-options", False),
        ("upgrade-insecure-requests", False),
        ("anthropic-ratelimit-requests-remaining", False),
        ("ratelimit-limit-requests", False),
        ("x-rate-limit-requests", False),
    ],
)
def test_what_is_called_after_load_tells_of_it(name: str, tells: bool) -> None:
    """As a word of its own; and a caller's own limits are its own."""
    assert headers.tells(name) is tells


async def test_a_header_that_changes_by_itself_is_reported_and_fails_nothing() -> None:
    """It had stayed the same until another tenant was busy, and goes on changing after that."""
    checks = await knocked("answers are numbered once somebody streams")
    assert checks["load-headers"].verdict is HELD
    assert "x-number" in checks["load-headers"].seen


@pytest.mark.parametrize(
    ("defect", "make", "among"),
    [
        ("seals are compared on a prefix", _altered, "a bit of the seal"),
        ("seals do not cover the body", _moved, "another body"),
        ("seals do not cover the path", _moved, "another path"),
        ("malformed bodies are fatal", _malformed, "a malformed body (500)"),
    ],
)
async def test_a_weak_seal_is_found(
    defect: str, make: Callable[..., Sequence[Shot]], among: str
) -> None:
    """Each defect fails the attack that is about it, and the check says by what."""
    assert (await tampered("none", make)).verdict is HELD
    check = await tampered(defect, make)
    assert check.verdict is FAILED
    assert among in check.seen


@pytest.mark.parametrize(
    ("defect", "make"),
    [("tickets never age", outdated), ("standing is not checked", misdirected)],
)
async def test_a_ticket_of_too_wide_a_use_is_found(
    defect: str, make: Callable[[Mint, Recorded, UUID], Sequence[Shot]]
) -> None:
    """With the engine's keys at hand: too old, or for nobody."""
    for defects, verdict in ((frozenset[str](), HELD), (frozenset({defect}), FAILED)):
        platform = Platform(defects)
        async with spied(platform) as (audit, wire):
            genuine = await wire.capture(audit.target.tenants[0], "Salt.")
            mint = Mint.read(wire.keys_file)
            assert mint is not None
            who = UUID(audit.target.tenants[0].id)
            hits = await fire(platform.engine_url, make(mint, genuine, who))
        assert refused("lifetime", "It is refused", hits, SERVED).verdict is verdict


@pytest.mark.parametrize("defect", ["standing is not checked", "running requests go on"])
async def test_what_outlives_its_tenant_is_found(defect: str) -> None:
    """A ticket that is good after a rotation, or a request that runs on."""
    platform = Platform(frozenset({defect}))
    async with spied(platform) as (audit, wire):
        check = await standing.check_standing(audit, PretendOperator(platform), wire)
    assert check.verdict is FAILED


async def test_a_stolen_ticket_that_opens_the_front_door_is_found() -> None:
    """A gateway that takes a client's ticket for its own."""
    async with spied(Platform(frozenset({"a client's ticket is passed on"}))) as (audit, wire):
        check = await check_stolen(audit, wire)
    assert check.verdict is FAILED
    assert int(check.figures["cached_for_stranger_tokens"] or 0) > 0


async def test_a_header_that_counts_beside_a_seal_is_found() -> None:
    """An engine that takes a request's id from a header that anybody may have added."""
    for defects, verdict in ((set(), HELD), ({"headers count that no seal covers"}, FAILED)):
        platform = Platform(frozenset(defects))
        async with spied(platform) as (audit, wire):
            genuine = await wire.capture(audit.target.tenants[0], "Salt.")
            assert (await check_unsealed(audit, genuine)).verdict is verdict


async def test_an_engine_without_tickets_fails_and_the_rest_is_not_tested() -> None:
    """Stock vLLM: its port serves strangers, and there is no ticket to tamper with."""
    platform = Platform(frozenset({"seals are for who wants", "metrics are open"}))
    async with platform.serving(), Audit(platform.target(), "1", 60, _nobody) as audit:
        checks = by_name([check async for check in SUITE.run(audit)])
    assert failed(checks) == {"strangers", "routes", "bodies", "control-secret"}
    assert checks["altered"].verdict is Verdict.NOT_TESTED
    assert checks["serves"].verdict is HELD


@pytest.mark.parametrize(
    ("secret", "defect", "verdict"),
    [
        ("another engine's", "none", Verdict.INCONCLUSIVE),
        (None, "there is no engine", Verdict.INCONCLUSIVE),
        (None, "it is no engine", Verdict.INCONCLUSIVE),
        (None, "none", HELD),
    ],
)
async def test_what_is_not_shown_to_be_the_engine_leaves_doubt(
    secret: str | None, defect: str, verdict: Verdict
) -> None:
    """Whatever it refuses: one that another secret opens, one without completions, one that forbids
    all; without its secret an engine is known by how it refuses."""
    platform = Platform(frozenset({defect}))
    async with platform.serving():
        target = replace(platform.target(), control_secret=secret)
        async with Audit(target, "1", 60, _nobody) as audit:
            checks = by_name([check async for check in SUITE.run(audit)])
    doubtful = ("strangers", "routes", "websockets", "bodies")
    assert {checks[name].verdict for name in doubtful} == {verdict}


async def test_a_dead_engine_leaves_doubt() -> None:
    """Nothing is refused where nothing answers."""
    target = Target("http://127.0.0.1:9/v1", [Tenant("a"), Tenant("b")], MODEL)
    async with Audit(replace(target, engine_url="http://127.0.0.1:9"), "1", 5, _nobody) as audit:
        verdicts = {check.verdict async for check in SUITE.run(audit)}
    assert verdicts == {Verdict.INCONCLUSIVE}


async def test_what_is_not_answered_is_fired_once_more() -> None:
    """Only what is not answered then, either, has broken the server or hung."""
    platform = Platform(frozenset({"one answer is late"}))
    async with platform.serving():
        shots = [Shot("late", Recorded("POST", "/v1/completions", (), b"{}"))] * 2
        hits = await fire(platform.engine_url, shots, 0.4)
    assert [hit.reply.status for hit in hits] == [403, 403]


def test_the_engine_is_found_by_its_whole_address() -> None:
    """Not by the end of its port; none of several is taken for another, and none is left out."""
    urls = {"a": "http://one:18000", "b": "http://one:8000/", "c": "http://two"}
    environ = {"SALTWALL_ENGINES": json.dumps([{"name": n, "url": u} for n, u in urls.items()])}
    target = Target("http://one:8080/v1", [], MODEL, engine_url="http://one:8000")
    assert [each["name"] for each in engines_of(environ, target)] == ["b", "a", "c"]
    assert [each["name"] for each in engines_of({}, target)] == [MODEL]
    with pytest.raises(AuditError, match="none of the 3 engines"):
        engines_of(environ, replace(target, engine_url="http://one:80"))


@pytest.mark.parametrize(
    ("reply", "control", "verdict"),
    [
        (Reply(403), SERVED, HELD),
        (Reply(403), (False, "The genuine request was refused"), Verdict.INCONCLUSIVE),
        (Reply(503), SERVED, Verdict.INCONCLUSIVE),
        (Reply(200), SERVED, FAILED),
        (Reply(101), SERVED, FAILED),
        (Reply(400), SERVED, FAILED),
        (Reply(500), SERVED, FAILED),
        (Reply(None, trouble="no answer in time"), SERVED, FAILED),
    ],
    ids=lambda value: str(getattr(value, "status", "")),
)
def test_only_a_refusal_beside_a_served_request_holds(
    reply: Reply, control: tuple[bool, str], verdict: Verdict
) -> None:
    """Accepted, read, broken or hung is a failure; not ready, or nothing to refuse, is in doubt."""
    hits = [Hit(Shot("one", Recorded("POST", "/v1/completions", (), b"{}")), reply)]
    check = refused("altered", "It is refused", hits, control)
    assert check.verdict is verdict


def test_what_was_minted_is_told_from_no_key_file(tmp_path: Path) -> None:
    """A file that is not there, or holds something else, gives no mint."""
    assert Mint.read(tmp_path / "engine-demo.json") is None
    (tmp_path / "engine-demo.json").write_text(json.dumps({"tickets": {}}))
    assert Mint.read(tmp_path / "engine-demo.json") is None
