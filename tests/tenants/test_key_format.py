"""An API key reads back as it was written, and nothing else is one."""

import re
import string
import zlib

from hypothesis import given
from hypothesis import strategies as st

from saltwall_tenants import key_format
from saltwall_tenants.key_format import KeyParts

BASE62 = string.digits + string.ascii_letters
parts = st.builds(
    KeyParts,
    st.text(BASE62, min_size=12, max_size=12),
    st.text(BASE62, min_size=43, max_size=43),
)


@given(parts)
def test_key_reads_back(key: KeyParts) -> None:
    """Writing and reading are inverse."""
    text = key_format.write(key)
    assert re.fullmatch(r"sw_live_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}", text)
    assert key_format.read(text) == key


@given(parts, st.data())
def test_any_altered_character_is_noticed(key: KeyParts, data: st.DataObject) -> None:
    """One changed character, anywhere, and it is no key."""
    text = key_format.write(key)
    position = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters().filter(lambda c: c != text[position]))
    assert key_format.read(text[:position] + other + text[position + 1 :]) is None


@given(st.text(max_size=80))
def test_arbitrary_text_is_no_key(text: str) -> None:
    """Random text, NULs and surrogates included, is no key and no error."""
    assert key_format.read(text) is None
    assert key_format.read("sw_live_" + text) is None


def test_a_right_checksum_does_not_excuse_a_wrong_shape() -> None:
    """A checksum over a body with other characters, or a shifted separator, makes no key."""
    for body in (
        "sw_live_" + "a" * 11 + "_" + "b" * 44,
        "sw_live_" + "a" * 12 + "_" + "b" * 42 + "_",
        "sw_live_" + "a" * 12 + "_" + "b" * 42 + "\0",
        "sw_test_" + "a" * 12 + "_" + "b" * 43,
    ):
        assert key_format.read(body + key_format._checksum(body)) is None


def test_checksum_is_crc32_in_base62() -> None:
    """The last six characters are the CRC32 of all before them, most significant first."""
    text = key_format.write(KeyParts("a" * 12, "b" * 43))
    alphabet = string.digits + string.ascii_uppercase + string.ascii_lowercase
    value = 0
    for character in text[-6:]:
        value = value * 62 + alphabet.index(character)
    assert value == zlib.crc32(text[:-6].encode())


def test_keys_are_random() -> None:
    """Two new keys share neither id nor secret."""
    first, second = key_format.new_parts(), key_format.new_parts()
    assert first.public_id != second.public_id
    assert first.secret != second.secret
