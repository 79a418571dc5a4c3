"""Ways of presenting a key that is none."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from saltwall_security.suites.keys.key_format import guessed, secret_chars, unknown

UNKNOWN = "unknown"
"""The kind that tells of nobody's key: what it is answered, others may be answered too."""
Fields = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Presented:
    """A way of presenting a key that is none.

    Args:
        twin: headers as malformed as these, with nothing of a good key.
    """

    kind: str
    headers: Fields = field(repr=False)
    twin: Fields | None = field(default=None, repr=False)


def bearer(kind: str, key: str) -> Presented:
    """A key in the usual place."""
    return Presented(kind, _bearer(key))


def bad_keys(key: str, others: str, rng: random.Random) -> Sequence[Presented]:
    """Keys that nobody has, from one's own and another tenant's.

    Args:
        key: a good key.
        others: another tenant's, of which the attacker knows the public part.
    """
    length, nobodys = secret_chars(key), unknown(key, rng)
    texts = {
        UNKNOWN: nobodys,
        "another's public part": guessed(others, rng),
        "all but the last character right": guessed(key, rng, length - 1),
        "half right": guessed(key, rng, length // 2),
        "cut": key[:-1],
        "half of it": key[: len(key) // 2],
        "lengthened": key + "A",
        "checksum wrong": key[:-1] + ("A" if key[-1] != "A" else "B"),
        "other case": key.swapcase(),
        "another product's": "sk-" + unknown(key, rng)[-48:],
        "one character": "x",
        "a null": "null",
        "a quotation": "' OR '1'='1",
        "an object": '{"$ne":null}',
    }
    shapes: Mapping[str, Callable[[str], Fields]] = {
        "empty": lambda _: _bearer(""),
        "not ASCII": lambda _: _bearer("sw_live_\xe9\xe9\xe9"),
        "long": lambda _: _bearer("A" * 2000),
        "its last character accented": lambda k: _bearer(k[:-1] + "\xe0"),
        "scheme Basic": lambda k: _authorized(f"Basic {k}"),
        "scheme Token": lambda k: _authorized(f"Token {k}"),
        "no scheme": lambda k: _authorized(k),
        "two in one header": lambda k: _bearer(f"{k}, Bearer {k}"),
        "two words": lambda k: _bearer(f"{k} {k}"),
        "two headers, the good one first": lambda k: _bearer(k) + _bearer(nobodys),
        "two headers, the good one last": lambda k: _bearer(nobodys) + _bearer(k),
    }
    other = unknown(key, rng)
    return [
        *(bearer(kind, text) for kind, text in texts.items()),
        *(Presented(kind, shape(key), shape(other)) for kind, shape in shapes.items()),
    ]


def _bearer(key: str) -> Fields:
    return _authorized(f"Bearer {key}")


def _authorized(text: str) -> Fields:
    return (("authorization", text),)
