"""The tenant that is attacked: a long cached prefix, and one question at a time after it."""

import time
from collections.abc import Callable, Sequence
from statistics import median_low
from typing import NamedTuple

from saltwall_security.client import Client
from saltwall_security.prober import Prober

QUESTION_WORDS = 8


class Asked(NamedTuple):
    """One question, and what was found cached of it.

    Args:
        at_s: when it was asked, on the monotonic clock.
        cached: tokens; None where the server does not say.
    """

    prefix: "Prefix"
    at_s: float
    cached: int | None
    prompt_tokens: int | None
    ttft_s: float

    @property
    def hit_rate(self) -> float | None:
        """The part of its tokens that was cached."""
        if self.cached is None or not self.prompt_tokens:
            return None
        return self.cached / self.prompt_tokens


class Prefix:
    """A long text, such as a system prompt, about which its tenant asks."""

    def __init__(
        self, probe: Prober, client: Client, text: str, words: Callable[[int], str]
    ) -> None:
        """
        Args:
            words: so many words for a question, that nobody has asked.
        """
        self._probe, self._client, self._text, self._words = probe, client, text, words
        self._alone: list[int] = []

    @property
    def full(self) -> int:
        """What there is to find of it (tokens): what its questions usually find alone.

        By chance one may begin as another did, and find a block more; the lower median does not.
        """
        return median_low(self._alone) if self._alone else 0

    async def ask(self, alone: bool = False) -> Asked:
        """One question.

        Args:
            alone: nobody attacks, and it was just asked about: it finds what there is to find.

        Raises:
            Refused: the server did not answer.
        """
        began = time.monotonic()
        prompt = f"{self._text} {self._words(QUESTION_WORDS)}"
        answer = await self._probe(self._client, prompt)
        if alone:
            self._alone.append(answer.cached_tokens or 0)
        return Asked(self, began, answer.cached_tokens, answer.prompt_tokens, answer.ttft_s)


def kept(asked: Sequence[Asked]) -> float | None:
    """The part of what there was to find that was found; None if nothing was ever cached."""
    full = sum(each.prefix.full for each in asked)
    found = sum(min(each.cached or 0, each.prefix.full) for each in asked)
    return found / full if full else None
