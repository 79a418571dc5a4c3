"""The auditor's own encoder: RFC 8949's one deterministic form, and its strict inverse."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltwall_security.collision.cbor import NotCanonical, decode, encode

VALUES = st.recursive(
    st.integers(-(2**64), 2**64 - 1) | st.binary() | st.text(),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (23, "17"),
        (24, "1818"),
        (100, "1864"),
        (1000, "1903e8"),
        (1000000, "1a000f4240"),
        (1000000000000, "1b000000e8d4a51000"),
        (18446744073709551615, "1bffffffffffffffff"),
        (-1, "20"),
        (-100, "3863"),
        (-18446744073709551616, "3bffffffffffffffff"),
        (b"", "40"),
        (b"\x01\x02\x03\x04", "4401020304"),
        ("", "60"),
        ("IETF", "6449455446"),
        ("水", "63e6b0b4"),
        ([], "80"),
        ([1, [2, 3], [4, 5]], "8301820203820405"),
        (list(range(1, 26)), "98190102030405060708090a0b0c0d0e0f101112131415161718181819"),
    ],
)
def test_the_rfcs_examples(value: Any, encoded: str) -> None:
    """Appendix A of RFC 8949, as far as block hashes go."""
    assert encode(value).hex() == encoded
    assert decode(bytes.fromhex(encoded)) == value


@given(VALUES)
def test_every_value_is_read_back(value: Any) -> None:
    """So that no two values have one encoding."""
    assert decode(encode(value)) == value


@given(st.binary(max_size=40))
def test_bytes_are_read_only_if_they_are_what_their_value_encodes_to(data: bytes) -> None:
    """Whatever the bytes are."""
    try:
        value = decode(data)
    except NotCanonical:
        return
    assert encode(value) == data


PADDED = ["1817", "190018", "1a0000ffff"]
INDEFINITE = ["9f01ff", "5f4101ff"]
OTHER_TYPES = ["f6", "f4", "c001"]
TOO_FEW_OR_MANY = ["", "42", "0000", "4101ff"]


@pytest.mark.parametrize("encoded", PADDED + INDEFINITE + OTHER_TYPES + TOO_FEW_OR_MANY)
def test_what_is_not_deterministic_is_refused(encoded: str) -> None:
    """A value has one encoding, and that is not it."""
    with pytest.raises(NotCanonical):
        decode(bytes.fromhex(encoded))


@pytest.mark.parametrize("value", [True, None, 1.5, {"a": 1}])
def test_what_no_block_hash_holds_is_refused(value: Any) -> None:
    """A boolean above all, which Python takes for a number."""
    with pytest.raises(TypeError):
        encode(value)
