"""A KV salt depends on the secret, the model and the scope, and its label reveals none of it."""

import hmac
import re

import cbor2
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from saltwall_tenants.wire import derive_kv_salt, salt_label

secrets = st.binary(min_size=32, max_size=32)
inputs = st.tuples(secrets, st.text(max_size=20), st.text(max_size=20))


def test_salt_is_that_of_the_design() -> None:
    """HKDF-SHA256(secret, no salt, 32 bytes, CBOR["saltwall/kv-salt/1", name, scope])."""
    info = cbor2.dumps(["saltwall/kv-salt/1", "demo", "scope"], canonical=True)
    expected = HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(bytes(32))
    assert derive_kv_salt(bytes(32), "demo", "scope") == expected


@given(inputs, inputs)
def test_salts_agree_only_where_everything_does(
    one: tuple[bytes, str, str], other: tuple[bytes, str, str]
) -> None:
    """Another secret, model or scope gives another salt."""
    assert (derive_kv_salt(*one) == derive_kv_salt(*other)) == (one == other)


def test_name_and_scope_are_framed() -> None:
    """("a", "bc") and ("ab", "c") are different partitions."""
    assert derive_kv_salt(bytes(32), "a", "bc") != derive_kv_salt(bytes(32), "ab", "c")


@given(secrets)
def test_label_is_16_hex_digits_of_a_mac(salt: bytes) -> None:
    """The label is hex(HMAC(salt, "label"))[:16]."""
    label = salt_label(salt)
    assert re.fullmatch("[0-9a-f]{16}", label)
    assert label == hmac.digest(salt, b"label", "sha256").hex()[:16]
    assert label not in salt.hex()
