"""RFC 8949 core deterministic encoding of what block hashes are made of, and its strict inverse.

Written for the auditor alone, so that a fault of the encoder under test is not in its judge too.
Only integers, byte strings, text and arrays occur in a block hash; nothing else is encoded.
"""

from collections.abc import Sequence
from typing import TypeAlias

Value: TypeAlias = int | bytes | str | Sequence["Value"]

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY = range(5)


class NotCanonical(ValueError):
    """Bytes that no value encodes to."""


def encode(value: Value) -> bytes:
    """The one encoding of a value (RFC 8949, section 4.2.1).

    Raises:
        TypeError: it holds something else than integers, bytes, text and arrays.
        OverflowError: an integer that needs more than 64 bits.
    """
    if isinstance(value, bool):
        raise TypeError("block hashes hold no booleans")
    if isinstance(value, int):
        return _head(_UNSIGNED, value) if value >= 0 else _head(_NEGATIVE, -1 - value)
    if isinstance(value, bytes):
        return _head(_BYTES, len(value)) + value
    if isinstance(value, str):
        text = value.encode()
        return _head(_TEXT, len(text)) + text
    if isinstance(value, list | tuple):
        return _head(_ARRAY, len(value)) + b"".join(encode(item) for item in value)
    raise TypeError(f"block hashes hold no {type(value).__name__}")


def _head(major: int, argument: int) -> bytes:
    if argument < 24:
        return bytes([major << 5 | argument])
    for code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if argument < 1 << 8 * size:
            return bytes([major << 5 | code]) + argument.to_bytes(size, "big")
    raise OverflowError("an integer of more than 64 bits")


def decode(data: bytes) -> Value:
    """The value that encodes to exactly these bytes; arrays are lists.

    That it exists for every encoding, and is the value that was encoded, is what makes the encoding
    injective.

    Raises:
        NotCanonical: there is none: cut, trailed, padded, or of another type.
    """
    value, end = _decode(data, 0)
    if end != len(data):
        raise NotCanonical("bytes follow the value")
    return value


def _decode(data: bytes, at: int) -> tuple[Value, int]:
    major, argument, at = _read_head(data, at)
    if major == _UNSIGNED:
        return argument, at
    if major == _NEGATIVE:
        return -1 - argument, at
    if major == _ARRAY:
        items: list[Value] = []
        for _ in range(argument):
            item, at = _decode(data, at)
            items.append(item)
        return items, at
    content = data[at : at + argument]
    if len(content) != argument:
        raise NotCanonical("cut within a string")
    if major == _BYTES:
        return content, at + argument
    if major == _TEXT:
        try:
            return content.decode(), at + argument
        except UnicodeDecodeError:
            raise NotCanonical("text that is not UTF-8") from None
    raise NotCanonical(f"major type {major}")


def _read_head(data: bytes, at: int) -> tuple[int, int, int]:
    if at >= len(data):
        raise NotCanonical("cut before a head")
    major, code = data[at] >> 5, data[at] & 31
    at += 1
    if code < 24:
        return major, code, at
    if code > 27:
        raise NotCanonical("a reserved or indefinite length")
    size = 1 << code - 24
    argument = int.from_bytes(data[at : at + size], "big")
    if at + size > len(data):
        raise NotCanonical("cut within a head")
    if argument < 24 or (size > 1 and argument < 1 << 4 * size):
        raise NotCanonical("a head longer than it need be")
    return major, argument, at + size
