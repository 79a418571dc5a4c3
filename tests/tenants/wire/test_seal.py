"""A seal fits one request: its ticket, method, path and body."""

import base64
import hashlib
import hmac

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltwall_tenants.wire import Refusal, WireError, check_seal, make_seal

KEY = bytes(range(32))
REQUEST = ("sw1.ticket", "POST", "/v1/completions", b'{"prompt":"hi"}')


def refusal(key: bytes, seal: str, ticket: str, method: str, path: str, body: bytes) -> Refusal:
    """Why the seal is refused for this request."""
    with pytest.raises(WireError) as error:
        check_seal(key, seal, ticket, method, path, hashlib.sha256(body).digest())
    return error.value.refusal


@given(st.binary(min_size=32, max_size=32), st.text(), st.text(), st.text(), st.binary())
def test_seal_fits_its_request(
    key: bytes, ticket: str, method: str, path: str, body: bytes
) -> None:
    """What was sealed is accepted."""
    seal = make_seal(key, ticket, method, path, body)
    check_seal(key, seal, ticket, method, path, hashlib.sha256(body).digest())


def test_seal_is_that_of_the_design() -> None:
    """base64url(HMAC-SHA256(key, CBOR[ticket, method, path, SHA-256(body)])), by hand."""
    ticket, method, path, body = REQUEST
    message = cbor2.dumps([ticket, method, path, hashlib.sha256(body).digest()], canonical=True)
    expected = base64.urlsafe_b64encode(hmac.digest(KEY, message, "sha256")).decode().rstrip("=")
    assert make_seal(KEY, *REQUEST) == expected


@pytest.mark.parametrize("part", range(4))
def test_seal_fits_no_other_request(part: int) -> None:
    """Another ticket, method, path or body, and the seal is refused."""
    other = ("sw1.tickeT", "PUT", "/v1/completions/", b'{"prompt":"hi"} ')
    moved = [other[i] if i == part else REQUEST[i] for i in range(4)]
    assert refusal(KEY, make_seal(KEY, *REQUEST), *moved) is Refusal.SEAL  # type: ignore[arg-type]


@given(st.text(min_size=1), st.text(min_size=1))
def test_parts_cannot_slide_into_each_other(method: str, path: str) -> None:
    """The framing keeps method and path apart: shifting characters between them breaks the seal."""
    seal = make_seal(KEY, "t", method, path, b"")
    assert refusal(KEY, seal, "t", method + path[0], path[1:], b"") is Refusal.SEAL


@given(st.integers(0, 42), st.characters())
def test_altered_seal_is_refused(position: int, other: str) -> None:
    """Any other character, anywhere, is refused."""
    seal = make_seal(KEY, *REQUEST)
    altered = seal[:position] + other + seal[position + 1 :]
    if altered != seal:
        assert refusal(KEY, altered, *REQUEST) in {Refusal.SEAL, Refusal.MALFORMED}


@pytest.mark.parametrize("cut", range(43))
def test_truncated_seal_is_refused(cut: int) -> None:
    """No beginning of a seal, the empty one included, is a seal."""
    assert refusal(KEY, make_seal(KEY, *REQUEST)[:cut], *REQUEST) is Refusal.MALFORMED


def test_seal_of_another_key_is_refused() -> None:
    """A seal proves the key."""
    assert refusal(KEY, make_seal(bytes(32), *REQUEST), *REQUEST) is Refusal.SEAL


@pytest.mark.parametrize("part", range(3))
def test_text_that_is_no_unicode_is_refused(part: int) -> None:
    """A lone surrogate, which JSON can carry, is a refusal like any other."""
    odd = ["\ud800" if i == part else REQUEST[i] for i in range(3)]
    assert refusal(KEY, make_seal(KEY, *REQUEST), *odd, b"") is Refusal.SEAL  # type: ignore[arg-type]


@given(st.text(st.characters()))
def test_arbitrary_seal_is_refused(text: str) -> None:
    """Random text is a refusal and never another error."""
    refusal(KEY, text, *REQUEST)
