"""A gateway routes only to an engine that says the right things of itself."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltwall_tenants.wire import (
    ALGORITHM,
    VECTOR_DIGEST,
    Attestation,
    Capacity,
    Refusal,
    WireError,
)

GOOD = Attestation("demo", ALGORITHM, VECTOR_DIGEST, "0.32.0", "0.1.0")
capacities = st.builds(Capacity, *[st.integers(1, 10**9)] * 4)


@given(st.builds(Attestation, *[st.text()] * 5, st.none() | capacities))
def test_attestation_arrives_as_sent(attestation: Attestation) -> None:
    """Encoding and decoding are inverse."""
    assert Attestation.decode(attestation.encode()) == attestation


@pytest.mark.parametrize("vllm", ["0.32.0", "0.32.1", "0.33.0", "0.33.1+cpu"])
def test_supported_engine_has_no_problems(vllm: str) -> None:
    """The tested range of vLLM, local builds included, is accepted."""
    assert replace(GOOD, vllm=vllm).problems("demo") == []


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("name", "other", "it is 'other', not 'demo'"),
        ("algorithm", "sha256", "block hash is 'sha256'"),
        ("vector_digest", "0" * 64, "differ from the published test vectors"),
        ("vllm", "0.31.9", "outside >=0.32,<0.34"),
        ("vllm", "0.34.0", "outside"),
        ("vllm", "1.32.0", "outside"),
        ("vllm", "dev", "outside"),
        ("vllm", "", "outside"),
    ],
)
def test_other_engine_has_a_problem_that_is_named(field: str, value: str, problem: str) -> None:
    """Each difference is a problem of its own, said in words."""
    (found,) = replace(GOOD, **{field: value}).problems("demo")
    assert problem in found


def test_every_problem_is_reported() -> None:
    """All that is wrong is said at once."""
    assert len(Attestation("a", "b", "c", "d", "e").problems("demo")) == 4


def test_newer_engines_fields_are_ignored() -> None:
    """A rolling upgrade may add fields."""
    document = json.loads(GOOD.encode()) | {"zeroize": True}
    assert Attestation.decode(json.dumps(document).encode()) == GOOD


def test_an_older_release_reads_what_it_knows() -> None:
    """The capacity is one more field, and without one the document is what it was."""
    with_capacity = json.loads(replace(GOOD, capacity=Capacity(320, 32)).encode())
    assert with_capacity.pop("capacity")["blocks"] == 320
    assert with_capacity == json.loads(GOOD.encode())


@pytest.mark.parametrize("capacity", [7, "320", [], {}, {"blocks": 0}, {"blocks": "320"}])
def test_a_capacity_that_is_none_is_refused(capacity: object) -> None:
    """An engine whose size cannot be read is no Saltwall engine."""
    document = json.loads(GOOD.encode()) | {"capacity": capacity}
    with pytest.raises(WireError):
        Attestation.decode(json.dumps(document).encode())


@pytest.mark.parametrize("field", ["name", "algorithm", "vector_digest", "vllm", "saltwall"])
@pytest.mark.parametrize("value", [None, 1, ["x"], "missing"])
def test_field_that_is_no_text_is_refused(field: str, value: object) -> None:
    """Every field is there, and is text."""
    document = json.loads(GOOD.encode())
    document[field] = value
    if value == "missing":
        del document[field]
    with pytest.raises(WireError) as error:
        Attestation.decode(json.dumps(document).encode())
    assert error.value.refusal is Refusal.MALFORMED


@given(st.binary(max_size=60))
def test_arbitrary_body_is_refused(body: bytes) -> None:
    """Random bytes are a refusal and never another error."""
    with pytest.raises(WireError):
        Attestation.decode(body)


@pytest.mark.parametrize("body", [b"[" * 100_000, b"null", b'"name"', b"[]", b"7"])
def test_other_json_is_refused(body: bytes) -> None:
    """Other JSON, deep nesting included, is no attestation."""
    with pytest.raises(WireError):
        Attestation.decode(body)
