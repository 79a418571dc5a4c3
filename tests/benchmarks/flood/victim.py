"""The tenant that is attacked: a long prefix, such as a system prompt, and a question each time."""

import asyncio
import random

import httpx
from flood.completion import Answer, complete
from flood.texts import Unique, words

PREFIX_WORDS = 1000
QUESTION_WORDS = 8
ANSWER_TOKENS = 4
PAUSE_S = 2.0
"""Between an answer and the next question (seconds)."""


class Victim:
    """Asks one question at a time."""

    def __init__(self, client: httpx.AsyncClient, seed: int) -> None:
        self._client = client
        self._prefix = words(PREFIX_WORDS, random.Random(f"victim {seed}"))
        self._question = Unique(seed)

    async def ask(self) -> Answer:
        """One question after the prefix."""
        prompt = f"{self._prefix} {self._question(QUESTION_WORDS)}"
        return await complete(self._client, prompt, max_tokens=ANSWER_TOKENS)

    async def ask_several(self, count: int) -> list[Answer]:
        """Questions one after the other, with a pause before each."""
        answers = []
        for _ in range(count):
            await asyncio.sleep(PAUSE_S)
            answers.append(await self.ask())
        return answers
