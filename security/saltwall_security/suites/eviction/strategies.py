"""What attackers do: each strategy is one request, sent for ever by all of them."""

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Reading(Enum):
    """What an attacker reads of the answers."""

    ALL = "all"
    FIRST = "hangs up at the first token"
    NOTHING = "holds the stream open, and reads nothing"


@dataclass(frozen=True)
class Strategy:
    """One attack.

    Args:
        title: what it does, for people.
        answer_tokens: how long the answers are.
        prompts: their lengths in turn, in parts of the usual prompt.
        sequences: answers that a request asks for.
        scoped: each request brings a `cache_salt` of its own.
        ceiling: the attackers' meanwhile, where an operator can set one.
        keys: several keys attack, of every tenant that there is.
    """

    name: str
    title: str
    answer_tokens: int
    prompts: tuple[float, ...] = (0.7, 0.8, 0.9, 1.0)
    sequences: int = 1
    reading: Reading = Reading.ALL
    scoped: bool = False
    ceiling: str | None = None
    keys: bool = False


STRATEGIES: Final = (
    Strategy("prefill", "one token for each of ever new long prompts", 1),
    Strategy("generations", "long answers to long prompts, which pin more than the pool", 200),
    Strategy("aborts", "hanging up at the first token", 200, reading=Reading.FIRST),
    Strategy("sequences", "eight answers to each prompt", 64, (0.3,), sequences=8),
    Strategy("scopes", "a cache_salt of its own for each request", 1, scoped=True),
    Strategy(
        "sizes", "now huge, now tiny requests, at a ceiling", 16, (2.2, 0.03, 1.1), ceiling="90%"
    ),
    Strategy("readers", "streams that nobody reads", 200, reading=Reading.NOTHING),
    Strategy("keys", "many keys, of many tenants", 1, keys=True),
)
"""The strongest first: a short budget makes only some."""
