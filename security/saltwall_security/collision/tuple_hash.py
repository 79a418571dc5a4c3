"""Python's `hash` of a tuple of ints, run backwards: a second block with a given block's hash.

Early vLLM hashed blocks so (CVE-2025-25183). CPython's tuple hash (Objects/tupleobject.c) takes one
item after the other into a state of 64 bits, by xxHash's round, and each round can be undone. So
two half-blocks meet in the middle, and the token where they meet comes for nothing: 2^25 steps for
a vocabulary of 2^17, instead of the 2^64 that a sound hash of 64 bits would cost.
"""

import sys
from collections.abc import Callable, Sequence

import numpy as np

VOCABULARY = 2**17
"""Token ids that a model of today has (Llama 3: 128,256)."""

_P1, _P2, _P5 = 11400714785074694791, 14029467366897019727, 2870177450012600261
_MASK = 2**64 - 1
_I1, _I2 = pow(_P1, -1, 2**64), pow(_P2, -1, 2**64)
_HALF = 2**23
_PART = 2**21


def applies() -> bool:
    """Whether this interpreter's `hash` is the one described."""
    sample = (1, 20, 300, 4000)
    state = _after(sample, _P5)
    return sys.hash_info.width == 64 and hash(sample) & _MASK == _finish(state, len(sample))


def _finish(state: int, length: int) -> int:
    return (state + (length ^ (_P5 ^ 3527539))) & _MASK


def _after(tokens: Sequence[int], state: int) -> int:
    for token in tokens:
        state = (state + token * _P2) & _MASK
        state = (state << 31 | state >> 33) & _MASK
        state = state * _P1 & _MASK
    return state


def _before(tokens: Sequence[int], state: int) -> int:
    for token in reversed(tokens):
        state = state * _I1 & _MASK
        state = (state >> 31 | state << 33) & _MASK
        state = (state - token * _P2) & _MASK
    return state


def second_block(
    block: Sequence[int], rng: np.random.Generator, lasts: Callable[[], bool]
) -> tuple[int, ...] | None:
    """Another block of the same length with the same `hash`; None if time ran out.

    Two tokens are free before the meeting token and two after it; all others are the block's own.

    Args:
        block: at least 5 token ids.
        rng: the dice.
        lasts: whether there is time left.
    """
    target = _after(block, _P5)
    first = np.arange(_HALF, dtype=np.uint64) + rng.integers(VOCABULARY**2 - _HALF, dtype=np.uint64)
    before = _forward_pairs(_after(block[:-5], _P5), first)
    reached = np.sort(before)
    while lasts():
        last = rng.integers(VOCABULARY**2, size=_PART, dtype=np.uint64)
        after = _backward_pairs(target, last)
        wanted = np.sort(after)  # sorted, so that neighbours in memory are looked up in turn
        nearest = reached[np.searchsorted(reached, wanted, side="right") - 1]
        # The meeting token is the difference, if that is a token id.
        for hit in np.flatnonzero(wanted - nearest < VOCABULARY):
            head = first[before == nearest[hit]][0]
            tail = last[after == wanted[hit]][0]
            found = (
                *block[:-5],
                *divmod(int(head), VOCABULARY),
                int(wanted[hit] - nearest[hit]),
                *divmod(int(tail), VOCABULARY),
            )
            if found != tuple(block) and hash(found) == hash(tuple(block)):
                return found
    return None


def _forward_pairs(state: int, pairs: np.ndarray) -> np.ndarray:
    """The state after each pair of tokens, in units of what a token adds to it."""
    states = np.full(len(pairs), state, np.uint64)
    for tokens in (pairs // VOCABULARY, pairs % VOCABULARY):
        states += tokens * np.uint64(_P2)
        states = (states << np.uint64(31) | states >> np.uint64(33)) * np.uint64(_P1)
    return states * np.uint64(_I2)


def _backward_pairs(state: int, pairs: np.ndarray) -> np.ndarray:
    """The state in which the meeting token was added, if each pair leads to `state` after it."""
    states = np.full(len(pairs), state, np.uint64)
    for tokens in (pairs % VOCABULARY, pairs // VOCABULARY):
        states = states * np.uint64(_I1)
        states = states >> np.uint64(31) | states << np.uint64(33)
        states -= tokens * np.uint64(_P2)
    states = states * np.uint64(_I1)
    states = states >> np.uint64(31) | states << np.uint64(33)
    return states * np.uint64(_I2)
