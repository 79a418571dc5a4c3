"""A policy arrives as it was sent, for the engine it was sent to, and never goes back in time."""

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltwall_tenants.wire import (
    Amount,
    Authorisation,
    Lease,
    Policy,
    Quota,
    Quotas,
    Refusal,
    WireError,
)

ACME, GLOBEX = UUID(int=0xACE), UUID(int=0x610BE)
SECTION = Authorisation(1000, {ACME: frozenset({1, 2}), GLOBEX: frozenset({7})})
POLICY = Policy("demo", Lease(60), SECTION)

sections = st.builds(
    Authorisation,
    st.integers(1, 2**62),
    st.dictionaries(st.uuids(), st.frozensets(st.integers(1, 2**32 - 1), max_size=4), max_size=8),
)
quota_sections = st.builds(
    Quotas,
    st.integers(1, 2**62),
    st.dictionaries(st.uuids(), st.just(Quota(Amount.parse("5%"))), max_size=4),
)
policies = st.builds(
    Policy,
    st.text(),
    st.builds(Lease, st.integers(1, 3600)),
    sections,
    st.none() | quota_sections,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def refusal(body: bytes, name: str = "demo") -> Refusal:
    """Why the body is refused."""
    with pytest.raises(WireError) as error:
        Policy.decode(body, name)
    return error.value.refusal


@given(policies)
def test_policy_arrives_as_sent(policy: Policy) -> None:
    """Encoding and decoding are inverse, and the digest is part of the document."""
    assert Policy.decode(policy.encode(), policy.name) == policy


@given(sections)
def test_digest_is_of_the_content(section: Authorisation) -> None:
    """Neither the order of tenants nor that of their generations changes the digest."""
    backwards = dict(reversed(list(section.tenants.items())))
    assert Authorisation(section.epoch, backwards).digest == section.digest


@given(sections, sections)
def test_other_content_has_another_digest(one: Authorisation, other: Authorisation) -> None:
    """Digests agree only where epoch and content do."""
    assert (one.digest == other.digest) == (one == other)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), 2),
        (("name",), "other"),
        (("name",), None),
        (("lease_seconds",), 0),
        (("lease_seconds",), 3601),
        (("lease_seconds",), 60.0),
        (("lease_seconds",), True),
        (("authorisation",), None),
        (("authorisation",), []),
        (("authorisation", "epoch"), 0),
        (("authorisation", "epoch"), 1001),
        (("authorisation", "epoch"), 2**63),
        (("authorisation", "epoch"), "1000"),
        (("authorisation", "digest"), "0" * 64),
        (("authorisation", "tenants"), {}),
        (("authorisation", "tenants"), []),
        (("authorisation", "tenants", ACME.hex), [1]),
        (("authorisation", "tenants", ACME.hex), [1, 2, 3]),
        (("authorisation", "tenants", ACME.hex), [0]),
        (("authorisation", "tenants", ACME.hex), [2**32]),
        (("authorisation", "tenants", ACME.hex), "12"),
        (("authorisation", "tenants", ACME.hex), 1),
        (("authorisation", "tenants", "00"), [1]),
        (("authorisation", "tenants", str(ACME)), [1, 2]),
        (("authorisation", "tenants", ACME.hex.upper()), [1, 2]),
        (("authorisation", "extra"), 1),
        (("extra",), 1),
    ],
)
def test_altered_policy_is_refused(path: tuple[str, ...], value: object) -> None:
    """Any field altered, added or out of range: the whole document is refused."""
    document: Any = json.loads(POLICY.encode())
    target = document
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    expected = Refusal.VERSION if path == ("version",) else Refusal.MALFORMED
    assert refusal(json.dumps(document).encode()) is expected


@pytest.mark.parametrize("part", ["version", "name", "lease_seconds", "authorisation"])
def test_missing_part_is_refused(part: str) -> None:
    """But for the quotas, nothing of a policy is optional."""
    document = json.loads(POLICY.encode())
    del document[part]
    assert refusal(json.dumps(document).encode()) is Refusal.MALFORMED


def test_truncated_policy_is_refused() -> None:
    """No beginning of a document is one."""
    body = POLICY.encode()
    assert {refusal(body[:cut]) for cut in range(len(body))} == {Refusal.MALFORMED}


@given(st.binary(max_size=100) | json_values.map(lambda value: json.dumps(value).encode()))
def test_arbitrary_body_is_refused(body: bytes) -> None:
    """Random bytes and random JSON are a refusal and never another error."""
    assert refusal(body) is Refusal.MALFORMED


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"version":' + b"9" * 10_000 + b"}", b'{"version":NaN}'],
    ids=["deep", "huge number", "not a number"],
)
def test_hostile_json_is_refused(body: bytes) -> None:
    """Deep nesting, endless numbers and what is no JSON number are malformed."""
    assert refusal(body) is Refusal.MALFORMED


def test_policy_for_another_engine_is_refused() -> None:
    """A push that reaches the wrong engine is not taken."""
    assert refusal(POLICY.encode(), name="other") is Refusal.MALFORMED


def test_section_lets_in_whom_it_names() -> None:
    """A tenant's listed generations pass; others, and other tenants, do not."""
    SECTION.check(ACME, 1)
    SECTION.check(GLOBEX, 7)
    for tenant, generation, why in (
        (ACME, 3, Refusal.UNKNOWN_GENERATION),
        (GLOBEX, 1, Refusal.UNKNOWN_GENERATION),
        (UUID(int=1), 1, Refusal.UNKNOWN_TENANT),
    ):
        with pytest.raises(WireError) as error:
            SECTION.check(tenant, generation)
        assert error.value.refusal is why


def test_empty_section_lets_nobody_in() -> None:
    """Default is deny."""
    with pytest.raises(WireError, match="unknown_tenant"):
        Authorisation(1, {}).check(ACME, 1)


def test_successor_is_newer_or_the_same() -> None:
    """The first, a newer and the very same section are taken."""
    SECTION.check_successor(None)
    SECTION.check_successor(Authorisation(999, {}))
    SECTION.check_successor(Authorisation(1000, dict(SECTION.tenants)))


def test_older_section_is_stale() -> None:
    """An older epoch never replaces a newer one, also with the same content."""
    with pytest.raises(WireError, match="stale_epoch"):
        SECTION.check_successor(Authorisation(1001, SECTION.tenants))


def test_two_contents_of_one_epoch_conflict() -> None:
    """One epoch with other content is refused: somebody made two truths."""
    with pytest.raises(WireError, match="epoch_conflict"):
        SECTION.check_successor(Authorisation(1000, {ACME: frozenset({1})}))


@pytest.mark.parametrize(
    "quotas",
    [
        None,
        7,
        [],
        {},
        {"epoch": 1},
        {"epoch": 1, "digest": "0" * 64, "tenants": {}},
        {"epoch": 1, "digest": "0" * 64, "tenants": {ACME.hex: {"reserve": "200%"}}},
        {"epoch": 1, "digest": "0" * 64, "tenants": {"nobody": {}}},
    ],
    ids=str,
)
def test_malformed_quotas_hold_up_nothing_else(quotas: object) -> None:
    """Whatever stands in the quota section, who may use the engine arrives all the same."""
    document = json.loads(POLICY.encode()) | {"quotas": quotas}
    policy = Policy.decode(json.dumps(document).encode(), "demo")
    assert (policy.authorisation, policy.lease) == (SECTION, Lease(60))
    assert isinstance(policy.quotas, WireError)
    assert policy.quotas.refusal is Refusal.MALFORMED


def test_a_gateway_that_knows_no_quotas_sends_what_it_always_sent() -> None:
    """Without quotas a document is that of the release before, so both sides can be upgraded."""
    assert set(json.loads(POLICY.encode())) == {
        "version",
        "name",
        "lease_seconds",
        "authorisation",
    }
    assert Policy.decode(POLICY.encode(), "demo").quotas is None


def test_quotas_that_cannot_be_read_are_not_sent() -> None:
    """The error that stands in their place stays at home."""
    policy = Policy("demo", Lease(60), SECTION, WireError(Refusal.MALFORMED, "stored so"))
    assert policy.encode() == POLICY.encode()
