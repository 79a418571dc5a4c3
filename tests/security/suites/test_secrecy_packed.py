"""Logs are unpacked; what cannot be, in whatever part of a file, is not taken for a text."""

import bz2
import gzip
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable
from io import BytesIO

import pytest

from saltwall_security.suites.secrecy.packed import unpacked

MOST = 10**6
LINES = b"".join(b"%d: a line\n" % number for number in range(99))


def lzma_alone(content: bytes) -> bytes:
    """As .lzma files are."""
    return lzma.compress(content, format=lzma.FORMAT_ALONE)


def in_two_parts(content: bytes) -> bytes:
    """As a log is that is packed a piece at a time, into blocks of a device."""
    return gzip.compress(content[:99]) + gzip.compress(content[99:]) + bytes(512)


def in_a_tar(content: bytes) -> bytes:
    """Packed, and only then put together with others."""
    packed, whole = gzip.compress(content), BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        about = tarfile.TarInfo("server.log.1.gz")
        about.size = len(packed)
        tar.addfile(about, BytesIO(packed))
    return whole.getvalue()


@pytest.mark.parametrize(
    "pack",
    [gzip.compress, bz2.compress, lzma.compress, lzma_alone, zlib.compress, in_two_parts],
)
def test_what_was_packed_is_unpacked(pack: Callable[[bytes], bytes]) -> None:
    """As a whole, also where it comes in parts."""
    assert unpacked(pack(LINES), MOST) == (LINES, True)


@pytest.mark.parametrize(
    "content",
    [
        b"\x28\xb5\x2f\xfd and so on",
        b"PK\x03\x04 and so on",
        gzip.compress(gzip.compress(b"twice")),
        gzip.compress(os.urandom(1000))[:-100],
        gzip.compress(b"too long" * MOST),
        b"\x1f\x8b is not gzip",
        b"\x5d\0\0\0\xff" + lzma_alone(LINES)[5:],
        bz2.compress(b"then") + b"something else",
        in_a_tar(os.urandom(1000)),
        gzip.compress(in_a_tar(os.urandom(1000))),
        LINES + os.urandom(1000) + LINES,
    ],
    ids=[
        "zstd",
        "zip",
        "twice",
        "broken off",
        "too long",
        "not gzip",
        "needs gigabytes",
        "then something else",
        "in a tar",
        "in a packed tar",
        "within a text",
    ],
)
def test_what_is_not_unpacked_is_not_whole(content: bytes) -> None:
    """And no more comes of it than was asked for."""
    found, whole = unpacked(content, MOST)
    assert not whole
    assert len(found) <= MOST


@pytest.mark.parametrize(
    "text",
    ["\x1b[31mrot\x1b[0m\b\b\x07\r\n", "\x01\x02\x03 Schlüssel\n", "Ключ=\x01 ", "85%\b\b\b"],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_text_is_whole(text: str, encoding: str) -> None:
    """In colour, in any language, with what somebody sent."""
    content = (text * 999).encode(encoding)
    assert unpacked(content, MOST) == (content, True)
