"""Two token blocks with one XXH3 hash, made from its structure and not by trying.

vLLM offers XXH3-128 as `xxhash` and `xxhash_cbor`. Above 240 bytes XXH3 (xxhash.h,
`XXH3_accumulate_512_scalar`) adds up 64-byte stripes in eight lanes: for each 8-byte word x and
word s of a public secret

    acc[lane ^ 1] += x        acc[lane] += low32(x ^ s) * high32(x ^ s)

Take two words of one lane whose low halves, xored with the secret, are equal. Adding 2^b to the
high half of one and taking it from the other changes neither sum, if the secrets agree in that bit.
All of XXH3's output, 64 bits or 128, is made from these sums, and the random parent of first blocks
is merely added to them: it does not help.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

LEAST_BYTES = 241
"""Shorter inputs are hashed another way."""
_STRIPE, _WORD, _LANES = 64, 8, 8
_BLOCK_STRIPES = 16
_ATTEMPTS = 200
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b532ea371644897a20df94e3819ef46a9deacd8a8"
    "fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364ea"
    "c5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b"
    "16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)

Encoder = Callable[[Sequence[int]], bytes]


Places = Mapping[int, tuple[int, int]]
"""Which bytes of an encoding are a token's: which token, and its bits there (0 or 8 and up)."""


def colliding_blocks(
    encoder: Encoder, length: int, vocabulary: int, rng: random.Random
) -> tuple[list[int], list[int]] | None:
    """Two different blocks of `length` tokens whose encodings have one XXH3 hash.

    Args:
        encoder: what is hashed, for a block's tokens; tokens from 256 to 65,535 must take two bytes
            each, at places that do not depend on others, as in CBOR and pickle.
        length: tokens in a block.
        vocabulary: token ids are below it.
        rng: the dice.

    Returns:
        None where the encoding leaves no room, as it does below 241 bytes.
    """
    vocabulary = min(vocabulary, 65_536)
    places = _places(encoder, length)
    for _ in range(_ATTEMPTS):
        data = encoder([rng.randrange(256, vocabulary) for _ in range(length)])
        if len(data) < LEAST_BYTES:
            return None
        for words in _word_pairs(len(data)):
            for changed in _exchanges(data, places, *words):
                blocks = _tokens(changed[0], places), _tokens(changed[1], places)
                if all(256 <= token < vocabulary for block in blocks for token in block):
                    return blocks
    return None


def _places(encoder: Encoder, length: int) -> Places:
    """Finds each token's bytes by changing them."""
    base = encoder([0x0101] * length)
    found = {}
    for i in range(length):
        for shift in (0, 8):
            changed = encoder([0x0101 + ((i == k) << shift) for k in range(length)])
            (at,) = (at for at, (a, b) in enumerate(zip(base, changed, strict=True)) if a != b)
            found[at] = i, shift
    return found


def _tokens(data: bytes, places: Places) -> list[int]:
    tokens = [0] * (len(places) // 2)
    for at, (token, shift) in places.items():
        tokens[token] |= data[at] << shift
    return tokens


def _word_pairs(size: int) -> Iterator[tuple[int, int, int, int]]:
    """Pairs of words of one lane: where they are in the input, and where their secrets are."""
    stripes = min((size - 1) // _STRIPE, _BLOCK_STRIPES)
    end = size - _STRIPE  # what follows is a stripe once more, under another secret
    for lane in range(_LANES):
        for n in range(stripes):
            for m in range(n + 1, stripes):
                one, other = (k * _STRIPE + lane * _WORD for k in (n, m))
                if other + _WORD <= end:
                    yield one, other, (n + lane) * _WORD, (m + lane) * _WORD


def _exchanges(
    data: bytes, places: Places, one: int, other: int, secret: int, other_secret: int
) -> Iterator[tuple[bytes, bytes]]:
    """Pairs of inputs that differ in one bit of each of two words, and leave the sums alone."""
    made = bytearray(data)

    def differ(byte: int) -> int:
        return _SECRET[secret + byte] ^ _SECRET[other_secret + byte]

    for byte in range(_WORD // 2):
        if made[one + byte] ^ made[other + byte] == differ(byte):
            continue
        if one + byte in places:
            made[one + byte] = made[other + byte] ^ differ(byte)
        elif other + byte in places:
            made[other + byte] = made[one + byte] ^ differ(byte)
        else:
            return
    for byte in range(_WORD // 2, _WORD):
        if one + byte not in places or other + byte not in places:
            continue
        for bit in range(8):
            if differ(byte) >> bit & 1:
                continue
            made[one + byte] &= ~(1 << bit) & 255
            made[other + byte] |= 1 << bit
            changed = bytearray(made)
            changed[one + byte] |= 1 << bit
            changed[other + byte] &= ~(1 << bit) & 255
            yield bytes(made), bytes(changed)
