"""The birthday experiment: do truncated block hashes collide as often as random numbers would?"""

from collections.abc import Sequence
from hashlib import sha256
from math import log2, pi, sqrt
from typing import NamedTuple

import numpy as np
from scipy import stats

from saltwall_security.collision.block_hash import NONE_HASH, preimage

WIDTHS = (16, 20, 24, 28, 32, 36, 40)
"""Bits kept of a digest; each width is cut from bits of its own, so that counts are independent."""
PAIRS = 64
"""Colliding pairs to expect at each width where enough hashes are made for it."""
LEAST = 5.0
"""Fewer expected pairs than this, and a width is left out: chi-square is no judge of it."""
DIGEST_BITS = 256
_FIRST = 65_536
_CHUNK = 65_536


class Width(NamedTuple):
    """What was seen at one width: the hashes made, and the pairs among them that are equal."""

    bits: int
    hashes: int
    expected: float
    pairs: int


class Fit(NamedTuple):
    """How well the counts agree with theory: Pearson's chi-square over all widths."""

    widths: Sequence[Width]
    statistic: float
    p_value: float


def digests(count: int, salt: bytes) -> np.ndarray:
    """Hashes of `count` blocks with one salt, which differ in one token, as rows of bytes."""
    block = preimage(NONE_HASH, [_FIRST + count, *range(15)], [["cache_salt", salt]])
    mark = (_FIRST + count).to_bytes(4, "big")
    at = block.index(mark)
    before, after = block[:at], block[at + 4 :]
    made = np.empty((count, DIGEST_BITS // 8), np.uint8)
    for start in range(0, count, _CHUNK):
        tokens = range(_FIRST + start, _FIRST + min(start + _CHUNK, count))
        rows = [sha256(before + token.to_bytes(4, "big") + after).digest() for token in tokens]
        made[start : start + len(rows)] = np.frombuffer(b"".join(rows), np.uint8).reshape(
            len(rows), -1
        )
    return made


def experiment(made: np.ndarray, widths: Sequence[int] = WIDTHS, dead: int = 0) -> Fit:
    """Counts the pairs of equal truncated digests at each width that there are enough hashes for.

    Args:
        made: digests as rows of bytes.
        widths: bits to keep, at most 56 each.
        dead: of these, bits that are always 0: the control, a digest of less than its width.
    """
    found = []
    at = 0
    for bits in widths:
        count = min(len(made), int(sqrt(2 * PAIRS * 2.0**bits)))
        expected = count * (count - 1) / 2 / 2.0**bits
        if expected >= LEAST:
            values = _window(made[:count], at, bits) >> np.uint64(dead)
            found.append(Width(bits, count, expected, equal_pairs(values)))
        at += bits
    # Pairs are nearly independent, so a count is nearly Poisson: its variance is its mean.
    statistic = sum((w.pairs - w.expected) ** 2 / w.expected for w in found)
    return Fit(found, statistic, float(stats.chi2.sf(statistic, len(found))))


def _window(made: np.ndarray, at: int, bits: int) -> np.ndarray:
    """`bits` bits of each row from bit `at` on, as integers."""
    first, last = at // 8, (at + bits - 1) // 8
    value = np.zeros(len(made), np.uint64)
    for column in range(first, last + 1):
        value = value << np.uint64(8) | made[:, column]
    drop = np.uint64(8 * (last + 1) - at - bits)
    return value >> drop & np.uint64(2**bits - 1)


def equal_pairs(values: np.ndarray) -> int:
    """How many pairs of equal values there are."""
    ordered = np.sort(values)
    edges = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1], [True])))
    runs = np.diff(edges).astype(np.int64)
    return int((runs * (runs - 1) // 2).sum())


def hashes_for_collision(bits: int = DIGEST_BITS) -> float:
    """How many hashes of this width it takes on average until two are equal, as a power of two.

    sqrt(pi/2 * 2^bits): Flajolet et al., "Birthday paradox, coupon collectors, caching algorithms
    and self-organizing search", 1992.
    """
    return bits / 2 + log2(sqrt(pi / 2))
