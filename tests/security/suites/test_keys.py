"""The keys suite finds what a platform tells of keys, and keys that outlive their end."""

import random
import string
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from pretend_platform import Platform

from saltwall_security import ending
from saltwall_security.check import Check, Verdict
from saltwall_security.suite import Audit
from saltwall_security.suites.keys import SUITE, timing
from saltwall_security.suites.keys.foreign import check_models, check_operators, check_requests
from saltwall_security.suites.keys.key_format import guessed, is_ours, unknown
from saltwall_security.suites.keys.refusals import check_missing, check_refusals
from saltwall_tenants import key_format

HELD, FAILED = Verdict.HELD, Verdict.FAILED


def _nobody(line: str) -> None:
    """Hears progress and forgets it."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never ends is known not to end sooner, and few answers are timed."""
    monkeypatch.setattr(ending, "FAILS_S", 0.4)
    monkeypatch.setattr(ending, "WATCHED_S", 0.2)
    monkeypatch.setattr(timing, "FEWEST", 40)
    monkeypatch.setattr(timing, "MOST", 40)


def by_name(checks: Sequence[Check]) -> Mapping[str, Check]:
    """Checks by the second part of their ids."""
    return {check.id.removeprefix("keys/"): check for check in checks}


async def audited(*defects: str, operated: bool = True) -> Mapping[str, Check]:
    """The whole suite."""
    platform = Platform(frozenset(defects))
    async with platform.serving(), Audit(platform.target(operated), "1", 1, _nobody) as audit:
        checks = [check async for check in SUITE.run(audit)]
    said = repr(checks)
    assert [secret for secret in platform.keys if secret in said] == []
    return by_name(checks)


def failed(checks: Mapping[str, Check]) -> set[str]:
    """The names of those that failed."""
    return {name for name, check in checks.items() if check.verdict is FAILED}


async def test_a_careful_platform_holds() -> None:
    """Nothing fails; only the time of refusals may be in doubt, with so few samples."""
    checks = await audited()
    odd = {n: (c.verdict, c.seen) for n, c in checks.items() if c.verdict is not HELD}
    assert set(odd) <= {"timing"}, odd
    assert "timing" not in failed(checks)
    assert checks["revocation"].figures["streams"] == 1


@pytest.mark.parametrize(
    ("defect", "found"),
    [
        ("revocation is forgotten", {"revocation", "refusals"}),
        ("one worker of two has not heard of it", {"revocation", "refusals"}),
        ("running streams go on", {"revocation", "suspension"}),
    ],
)
async def test_a_key_that_outlives_its_end_is_found(defect: str, found: set[str]) -> None:
    """A revoked key that still works, and a stream that nobody ends."""
    assert failed(await audited(defect, "running requests go on")) == found


@pytest.mark.parametrize(
    ("defect", "found"),
    [
        ("none", set()),
        ("revoked keys are told so", {"refusals"}),
        ("keys are compared on a prefix", {"refusals"}),
        ("a cookie opens", {"missing"}),
        ("a route is open", {"missing"}),
    ],
)
async def test_what_bad_keys_are_told_apart_by_is_found(defect: str, found: set[str]) -> None:
    """One answer that differs, or lets in, among all kinds of keys."""
    platform = Platform(frozenset({defect}))
    async with platform.serving(), Audit(platform.target(True), "1", 10, _nobody) as audit:
        operator = audit.target.operator
        assert operator is not None
        public_id, dead = operator.create_key(audit.target.tenants[1])
        operator.revoke_key(public_id)
        checks = by_name(
            [await check_refusals(audit, {"revoked": dead}), await check_missing(audit)]
        )
    assert failed(checks) == found


@pytest.mark.parametrize(
    ("defect", "verdict"),
    [("a near key takes longer", FAILED), ("none", Verdict.INCONCLUSIVE)],
)
async def test_time_that_tells_of_a_key_is_found(defect: str, verdict: Verdict) -> None:
    """Some milliseconds more for a public part that exists; so few pairs are no pass."""
    platform = Platform(frozenset({defect}))
    async with platform.serving(), Audit(platform.target(), "1", 10, _nobody) as audit:
        check = await timing.check_timing(audit, 0.1)
    assert check.verdict is verdict, check.seen
    assert check.figures["pairs"] == 40


async def test_what_refuses_good_keys_alike_leaves_doubt() -> None:
    """Where there is nothing, every key gets one answer, and no route shows anything."""
    platform = Platform()
    async with platform.serving():
        elsewhere = replace(platform.target(), url=f"{platform.url}/elsewhere")
        async with Audit(elsewhere, "1", 10, _nobody) as audit:
            checks = [
                await check_refusals(audit, {}),
                await check_missing(audit),
                await check_operators(audit),
            ]
    assert {check.verdict for check in checks} == {Verdict.INCONCLUSIVE}


async def test_another_tenants_things_are_found_where_they_are_to_be_had() -> None:
    """Hidden models, kept responses, running requests, and the operator's routes."""
    found = {}
    for defect in (
        "none",
        "a model shows that it is hidden",
        "responses are anybody's",
        "anybody cancels",
        "metrics are open",
    ):
        platform = Platform(frozenset({defect}))
        async with platform.serving(), Audit(platform.target(), "1", 10, _nobody) as audit:
            checks = [
                await check(audit) for check in (check_models, check_requests, check_operators)
            ]
        found[defect] = failed(by_name(checks))
        assert {check.verdict for check in checks} <= {HELD, FAILED}
    assert found == {
        "none": set(),
        "a model shows that it is hidden": {"models"},
        "responses are anybody's": {"foreign-requests"},
        "anybody cancels": {"foreign-requests"},
        "metrics are open": {"operators-routes"},
    }


async def test_without_an_operator_no_key_is_ended() -> None:
    """What takes one is not tested, and the rest is."""
    checks = await audited(operated=False)
    assert checks["revocation"].verdict is Verdict.NOT_TESTED
    assert checks["refusals"].verdict is HELD
    assert checks["refusals"].claim.startswith("Unknown and malformed keys")


def test_keys_that_are_nearly_right_are_well_formed() -> None:
    """The platform's own reader takes them for keys, so that they reach its comparison."""
    rng = random.Random(1)
    genuine = key_format.write(key_format.new_parts())
    assert is_ours(genuine)
    for made in (unknown(genuine, rng), guessed(genuine, rng), guessed(genuine, rng, 40)):
        assert key_format.read(made) is not None
        assert made != genuine
    parts, near = key_format.read(genuine), key_format.read(guessed(genuine, rng, 40))
    assert parts is not None
    assert near is not None
    assert near.public_id == parts.public_id
    assert near.secret[:40] == parts.secret[:40]


def test_any_other_key_is_varied_in_its_own_form() -> None:
    """A server with keys of its own gets keys of that length."""
    rng, key = random.Random(1), "".join(string.ascii_lowercase)
    assert not is_ours(key)
    for made in (unknown(key, rng), guessed(key, rng), guessed(key, rng, 25)):
        assert len(made) == len(key)
        assert made != key


async def test_names_of_tenants_need_not_be_ascii() -> None:
    """Also where they are sent in headers."""
    platform = Platform()
    async with platform.serving():
        target = platform.target(operated=False)
        target = replace(target, tenants=[replace(each, name="Łódź") for each in target.tenants])
        async with Audit(target, "1", 1, _nobody) as audit:
            assert (await check_missing(audit)).verdict is HELD
