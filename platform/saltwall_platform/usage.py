"""Token counts, as engines report them."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Usage:
    """Tokens of one request; `cached_tokens` are part of `prompt_tokens`."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


def read_usage(value: Any) -> Usage | None:
    """Reads an OpenAI `usage` object; None if it is none."""
    if not isinstance(value, dict):
        return None
    details = value.get("prompt_tokens_details")
    return Usage(
        prompt_tokens=_count(value.get("prompt_tokens")),
        cached_tokens=_count(details.get("cached_tokens")) if isinstance(details, dict) else 0,
        completion_tokens=_count(value.get("completion_tokens")),
    )


def _count(value: Any) -> int:
    return value if type(value) is int and value >= 0 else 0


@dataclass
class Meter:
    """What one request has used so far, from whatever the engine has said about it.

    Its final word counts; before that the running counts of each choice and prompt; without those
    a chunk counts as one token, the least it can be.
    """

    choices_per_prompt: int = 1
    final: Usage | None = None
    _prompts: dict[int, int] = field(default_factory=dict)
    _completions: dict[int, int] = field(default_factory=dict)

    def running(self, choices: list[Any], usage: Usage) -> None:
        """Notes a chunk with running counts: of its own choice, and that choice's prompt."""
        for index in _indices(choices):
            prompt = index // self.choices_per_prompt
            self._prompts[prompt] = max(usage.prompt_tokens, self._prompts.get(prompt, 0))
            self._completions[index] = max(usage.completion_tokens, self._completions.get(index, 0))

    def chunk(self, choices: list[Any]) -> None:
        """Notes a chunk without counts."""
        for index in _indices([c for c in choices if not _is_opening(c)]):
            self._completions[index] = self._completions.get(index, 0) + 1

    def total(self) -> Usage:
        """The sum."""
        if self.final is not None:
            return self.final
        return Usage(
            prompt_tokens=sum(self._prompts.values()),
            completion_tokens=sum(self._completions.values()),
        )


def _indices(choices: list[Any]) -> list[int]:
    found = [choice.get("index") for choice in choices if isinstance(choice, dict)]
    return [index for index in found if type(index) is int]


def _is_opening(choice: Any) -> bool:
    """Whether this is a chat choice's first chunk, which holds its role and no token."""
    delta = choice.get("delta") if isinstance(choice, dict) else None
    return isinstance(delta, dict) and "role" in delta
