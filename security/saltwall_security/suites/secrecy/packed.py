"""Logs that were packed when they were rotated: what stands in them is what was packed."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, Final

_CHUNK: Final = 2**20
_OPENED: Final[Mapping[bytes, Callable[[BytesIO], Any]]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
_CLOSED: Final = {
    "zstd": b"\x28\xb5\x2f\xfd",
    "lz4": b"\x04\x22\x4d\x18",
    "zip": b"PK\x03\x04",
    "7z": b"7z\xbc\xaf\x27\x1c",
    "compress": b"\x1f\x9d",
    "a journal of systemd": b"LPKSHHRH",
}
"""What is not unpacked here."""


def unpacked(content: bytes, most: int) -> tuple[bytes, bool]:
    """What was packed with gzip, bzip2 or xz, and other contents as they are.

    Args:
        most: bytes to unpack.

    Returns:
        The contents, and whether they are all that there is to read: not where they are longer,
        break off, or are packed in another way, or twice.
    """
    opened = next((each for magic, each in _OPENED.items() if content.startswith(magic)), None)
    if opened is None:
        return content, not content.startswith(tuple(_CLOSED.values()))
    found = bytearray()
    try:
        with opened(BytesIO(content)) as file:
            while len(found) <= most and (chunk := file.read(_CHUNK)):
                found += chunk
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        return bytes(found), False
    again = found.startswith((*_OPENED, *_CLOSED.values()))
    return bytes(found[:most]), len(found) <= most and not again
