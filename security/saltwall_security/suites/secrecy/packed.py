"""Logs that were packed when they were rotated: what stands in them is what was packed."""

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from typing import Any, Final

_CHUNK: Final = 2**16
_GZIP_OR_ZLIB: Final = partial(zlib.decompressobj, zlib.MAX_WBITS | 32)
_XZ_OR_LZMA: Final = partial(lzma.LZMADecompressor, memlimit=2**27)
"""Twice what `xz -9` needs; a header may ask for gigabytes."""
_OPENED: Final[Mapping[bytes, Callable[[], Any]]] = {
    b"\x1f\x8b": _GZIP_OR_ZLIB,
    b"x\x01": _GZIP_OR_ZLIB,
    b"x\x9c": _GZIP_OR_ZLIB,
    b"x\xda": _GZIP_OR_ZLIB,
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\0": _XZ_OR_LZMA,
    b"\x5d\0\0": _XZ_OR_LZMA,
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
_TEXTS: Final = b"\0\a\b\t\n\v\f\r\x1b"
_KINDS: Final = bytes(
    ord("h") if byte >= 0x80 else ord("c") if byte < 0x20 and byte not in _TEXTS else ord(".")
    for byte in range(256)
)
_PAIR: Final = re.compile(b"ch")
_PAIRS, _WITHIN = 8, 256
"""What is packed has that often within so many bytes, everywhere, a control character and a byte
beyond ASCII side by side (twice as often on average); no text does."""


def unpacked(content: bytes, most: int) -> tuple[bytes, bool]:
    """What was packed with gzip, zlib, bzip2, xz or lzma, and other contents as they are.

    Args:
        most: bytes to unpack.

    Returns:
        The contents, and whether they are all that there is to read: not where they are longer,
        break off, go on as something else, or are packed in another way or twice, in any part.
    """
    if _opener(content) is None:
        return content, _is_text(content)
    found, at, whole = BytesIO(), 0, True
    while whole and at < len(content):
        opened = _opener(content[at : at + _CHUNK])
        if opened is None:  # some writers fill the end with zeros
            whole = not content[at:].strip(b"\0")
            break
        at, whole = _one(opened(), content, at, found, most)
    text = found.getvalue()  # no copy, as a bytearray's would be
    return text, whole and _is_text(text)


def _one(opened: Any, content: bytes, at: int, found: BytesIO, most: int) -> tuple[int, bool]:
    """Unpacks what begins at a byte; where the next begins, and whether this came to its end."""
    while not opened.eof and at < len(content):
        chunk = content[at : at + _CHUNK]
        try:
            found.write(opened.decompress(chunk, most + 1 - found.tell()))
        except (OSError, EOFError, zlib.error, lzma.LZMAError):
            return at, False
        if found.tell() > most:
            found.truncate(most)
            return at, False
        at += len(chunk) - len(opened.unused_data)
    return at, opened.eof


def _opener(content: bytes) -> Callable[[], Any] | None:
    return next((each for magic, each in _OPENED.items() if content.startswith(magic)), None)


def _is_text(content: bytes) -> bool:
    """Whether nothing in it is packed."""
    if content.startswith((*_OPENED, *_CLOSED.values())):
        return False
    parts = range(0, len(content), _CHUNK)
    return not any(_packed(content[at : at + _CHUNK + _WITHIN]) for at in parts)


def _packed(part: bytes) -> bool:
    pairs = [found.start() for found in _PAIR.finditer(part.translate(_KINDS))]
    return any(
        last - first < _WITHIN for first, last in zip(pairs, pairs[_PAIRS - 1 :], strict=False)
    )
