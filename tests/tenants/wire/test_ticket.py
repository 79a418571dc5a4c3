"""A ticket opens for its engine, whole and fresh, and in no other case."""

import base64
import re
from collections.abc import Callable
from uuid import UUID

import cbor2
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
from hypothesis import given
from hypothesis import strategies as st

from saltwall_tenants.wire import (
    MAX_CLOCK_SKEW_S,
    MAX_TICKET_AGE_S,
    TICKET_CHARS,
    Refusal,
    Ticket,
    WireError,
    make_ticket,
    open_ticket,
)

KEY = bytes(range(32))
KEYS = {1: KEY}
NOW = 1_800_000_000
TICKET = Ticket(UUID("12345678-1234-4234-8234-123456789abc"), 7, bytes(range(32, 64)), NOW)
TEXT = make_ticket(1, KEY, "demo", TICKET)

tickets = st.builds(
    Ticket,
    tenant=st.uuids(),
    generation=st.integers(0, 2**32 - 1),
    salt=st.binary(min_size=32, max_size=32),
    issued_at=st.integers(0, 2**32 - 1),
)
key_ids = st.integers(0, 255)
keys = st.binary(min_size=32, max_size=32)
names = st.text(max_size=60)


def refusal(text: object, name: str = "demo", now: float = NOW) -> Refusal:
    """Why the text is refused."""
    with pytest.raises(WireError) as error:
        open_ticket(text, KEYS, name, now=now)
    assert error.value.__cause__ is None
    return error.value.refusal


@given(tickets, key_ids, keys, names)
def test_ticket_opens_to_what_it_said(ticket: Ticket, key_id: int, key: bytes, name: str) -> None:
    """Making and opening are inverse, and the key id comes with it."""
    text = make_ticket(key_id, key, name, ticket)
    assert open_ticket(text, {key_id: key}, name, now=ticket.issued_at) == (key_id, ticket)


@given(tickets, key_ids)
def test_ticket_is_118_url_safe_characters(ticket: Ticket, key_id: int) -> None:
    """Its length says nothing, and vLLM's forbidden characters are not in it."""
    text = make_ticket(key_id, KEY, "demo", ticket)
    assert len(text) == TICKET_CHARS == 118
    assert re.fullmatch(r"sw1\.[A-Za-z0-9_-]{114}", text)


def test_vllm_accepts_it_as_a_cache_salt(vllm_cache_salt: Callable[[object], None]) -> None:
    """vLLM's own validator lets a ticket pass, and would not let a longer one."""
    for key_id in (0, 1, 255):
        vllm_cache_salt(make_ticket(key_id, KEY, "demo", TICKET))
    with pytest.raises(Exception, match="cache_salt"):
        vllm_cache_salt("x" * 129)


def test_layout_is_that_of_the_design() -> None:
    """key_id(1) | nonce(12) | AES-256-GCM-SIV(tenant | generation | salt | issued_at), by hand."""
    raw = base64.urlsafe_b64decode(TEXT.removeprefix("sw1.") + "==")
    place = cbor2.dumps(["saltwall/ticket/1", "demo"], canonical=True)
    body = AESGCMSIV(KEY).decrypt(raw[1:13], raw[13:], place)
    assert raw[0] == 1
    assert body == (
        TICKET.tenant.bytes + (7).to_bytes(4, "big") + TICKET.salt + NOW.to_bytes(4, "big")
    )


def test_tickets_of_one_tenant_look_unrelated() -> None:
    """Each ticket has a nonce of its own, so that equal contents do not show."""
    assert len({make_ticket(1, KEY, "demo", TICKET)[6:] for _ in range(20)}) == 20


def test_every_altered_character_is_refused() -> None:
    """At every position, any other character of the alphabet, and one outside it."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for position, original in enumerate(TEXT):
        for other in {*alphabet, "+", "/", "=", ".", "\0", "é"} - {original}:
            refusal(TEXT[:position] + other + TEXT[position + 1 :])


def test_every_altered_bit_is_refused() -> None:
    """Each flipped bit of the sealed bytes is a forgery, or an unknown key id."""
    raw = base64.urlsafe_b64decode(TEXT.removeprefix("sw1.") + "==")
    for bit in range(len(raw) * 8):
        altered = bytearray(raw)
        altered[bit // 8] ^= 1 << bit % 8
        text = "sw1." + base64.urlsafe_b64encode(altered).decode().rstrip("=")
        assert refusal(text) is (Refusal.UNKNOWN_KEY if bit < 8 else Refusal.FORGED)


def test_every_truncation_is_refused() -> None:
    """Any beginning, any end, and anything appended."""
    for cut in range(len(TEXT)):
        assert refusal(TEXT[:cut]) in {Refusal.MALFORMED, Refusal.VERSION}
        assert refusal(TEXT[cut + 1 :]) is Refusal.MALFORMED
    for extra in ("=", "==", "A", " ", "\n", "\0", TEXT):
        assert refusal(TEXT + extra) is Refusal.MALFORMED


def test_other_spelling_of_the_same_bytes_is_refused() -> None:
    """The last character has unused bits; only the one spelling that was made is accepted."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    raw = base64.urlsafe_b64decode(TEXT.removeprefix("sw1.") + "==")
    twins = [
        TEXT[:-1] + last
        for last in alphabet
        if base64.urlsafe_b64decode((TEXT[:-1] + last).removeprefix("sw1.") + "==") == raw
    ]
    assert len(twins) > 1
    for twin in set(twins) - {TEXT}:
        assert refusal(twin) is Refusal.MALFORMED


@pytest.mark.parametrize("version", ["sw0.", "sw2.", "sw1-", "sw11", "sw.1"])
def test_other_version_is_refused(version: str) -> None:
    """Another version says so, whatever follows."""
    assert refusal(version + TEXT[4:]) is Refusal.VERSION


def test_other_engines_ticket_is_refused() -> None:
    """A ticket for one name opens under no other, also with the same key."""
    for name in ("Demo", "demo ", "", "demo\0", "demo/lora"):
        assert refusal(TEXT, name=name) is Refusal.FORGED


def test_other_key_is_refused() -> None:
    """A key that is not the ticket's does not open it; an id that is not held is unknown."""
    assert refusal(make_ticket(1, bytes(32), "demo", TICKET)) is Refusal.FORGED
    assert refusal(make_ticket(2, KEY, "demo", TICKET)) is Refusal.UNKNOWN_KEY


def test_both_keys_of_a_rotation_open() -> None:
    """While two key ids are held, tickets of both open; after the old one is dropped, only one."""
    other = bytes(range(1, 33))
    new = make_ticket(2, other, "demo", TICKET)
    both = {1: KEY, 2: other}
    assert [open_ticket(t, both, "demo", now=NOW)[0] for t in (TEXT, new)] == [1, 2]
    with pytest.raises(WireError, match="unknown_key"):
        open_ticket(TEXT, {2: other}, "demo", now=NOW)


@pytest.mark.parametrize(
    ("age", "why"),
    [
        (-MAX_CLOCK_SKEW_S - 0.001, Refusal.FUTURE),
        (MAX_TICKET_AGE_S + 0.001, Refusal.EXPIRED),
        (10**9, Refusal.EXPIRED),
    ],
)
def test_ticket_of_another_time_is_refused(age: float, why: Refusal) -> None:
    """Older than 60 seconds, or more than 30 in the future."""
    assert refusal(TEXT, now=NOW + age) is why


@pytest.mark.parametrize("age", [-MAX_CLOCK_SKEW_S, 0, MAX_TICKET_AGE_S])
def test_ticket_at_the_edge_opens(age: float) -> None:
    """Exactly 60 seconds old and exactly 30 early are fresh."""
    assert open_ticket(TEXT, KEYS, "demo", now=NOW + age) == (1, TICKET)


def test_longer_age_is_granted_on_request() -> None:
    """EngineCore accepts a ticket for as long as the longest request may run."""
    assert open_ticket(TEXT, KEYS, "demo", max_age_s=3600, now=NOW + 3600)
    with pytest.raises(WireError, match="expired"):
        open_ticket(TEXT, KEYS, "demo", max_age_s=3600, now=NOW + 3601)


def test_now_is_the_clock_unless_told() -> None:
    """Without a time, this machine's is used."""
    with pytest.raises(WireError, match=r"expired|future"):
        open_ticket(make_ticket(1, KEY, "demo", Ticket(TICKET.tenant, 1, KEY, 0)), KEYS, "demo")


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.binary(), st.lists(st.text())))
def test_what_is_no_text_is_refused(value: object) -> None:
    """Any other JSON type, or bytes, is malformed."""
    assert refusal(value) is Refusal.MALFORMED


@given(st.text(st.characters(), max_size=200), st.sampled_from(["", "sw1.", "sw"]))
def test_arbitrary_text_is_refused(text: str, start: str) -> None:
    """Random text, NULs and surrogates included, is a refusal and never another error."""
    refusal(start + text)


def test_long_text_is_refused_unread() -> None:
    """A megabyte is too long, whatever is in it."""
    assert refusal("sw1." + "A" * 2**20) is Refusal.MALFORMED


def test_refusal_does_not_echo() -> None:
    """No part of the text is in the error."""
    with pytest.raises(WireError) as error:
        open_ticket("sw1.canary" + TEXT[10:], KEYS, "demo", now=NOW)
    assert "canary" not in str(error.value)
