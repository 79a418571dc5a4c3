"""How Saltwall writes API keys, by its own description, and keys that are nearly right."""

import random
import string
import zlib

PREFIX = "sw_live_"
PUBLIC_CHARS, SECRET_CHARS, CHECK_CHARS = 12, 43, 6
_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase


def is_ours(key: str) -> bool:
    """Whether it is a whole Saltwall key: id, secret and a checksum that fits."""
    body = key[:-CHECK_CHARS]
    whole = len(key) == len(PREFIX) + PUBLIC_CHARS + 1 + SECRET_CHARS + CHECK_CHARS
    return whole and key.startswith(PREFIX) and key == body + _checksum(body)


def unknown(like: str, rng: random.Random) -> str:
    """A well-formed key that nobody was given."""
    if not is_ours(like):
        return _random(rng, len(like))
    return _key(_random(rng, PUBLIC_CHARS), _random(rng, SECRET_CHARS))


def guessed(like: str, rng: random.Random, right: int = 0) -> str:
    """The public part of a key with a made-up secret.

    Args:
        right: how many characters at the beginning of the secret are right.
    """
    if not is_ours(like):
        return (
            like[:right]
            + _other(like[right : right + 1], rng)
            + _random(rng, len(like) - right - 1)
        )
    public = like[len(PREFIX) :][:PUBLIC_CHARS]
    secret = like[len(PREFIX) + PUBLIC_CHARS + 1 :][:SECRET_CHARS]
    rest = _other(secret[right], rng) + _random(rng, SECRET_CHARS - right - 1)
    return _key(public, secret[:right] + rest)


def secret_chars(like: str) -> int:
    """How long the secret of such a key is."""
    return SECRET_CHARS if is_ours(like) else len(like)


def _key(public: str, secret: str) -> str:
    body = f"{PREFIX}{public}_{secret}"
    return body + _checksum(body)


def _checksum(body: str) -> str:
    value, digits = zlib.crc32(body.encode()), ""
    for _ in range(CHECK_CHARS):
        value, digit = divmod(value, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits


def _other(char: str, rng: random.Random) -> str:
    return rng.choice([each for each in _ALPHABET if each != char])


def _random(rng: random.Random, chars: int) -> str:
    return "".join(rng.choice(_ALPHABET) for _ in range(chars))
