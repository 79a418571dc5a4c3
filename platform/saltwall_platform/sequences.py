"""What a request costs in sequences: prompts x n, or prompts x beams."""

from typing import Any

from saltwall_platform.errors import bad_request


def count_sequences(document: dict[str, Any], limit: int) -> int:
    """Counts the sequences that the engine would run.

    Where vLLM's lenient parsing could read a field in several ways (`"4"`, `4.0`, `true`), only
    the plain form is accepted, so that what is counted is what runs.

    Raises:
        ApiError: 400; not countable, or more than `limit`.
    """
    if not isinstance(document.get("use_beam_search"), bool | None):
        raise bad_request("use_beam_search must be true or false.", "use_beam_search")
    prompts = _prompts(document.get("prompt")) + _embeds(document.get("prompt_embeds"))
    # With beam search `n` is the number of beams; `best_of` is the older name for either.
    each = max(_positive(document, "n"), _positive(document, "best_of"))
    sequences = max(prompts, 1) * each
    if sequences > limit:
        raise bad_request(
            f"This asks for {sequences} sequences ({max(prompts, 1)} x {each});"
            f" at most {limit} are allowed in one request.",
            "n" if each > 1 else "prompt",
        )
    return sequences


def choices_per_prompt(document: dict[str, Any]) -> int:
    """How many choices of the answer belong to one prompt."""
    return _positive(document, "n")


def _positive(document: dict[str, Any], name: str) -> int:
    value = document.get(name)
    if value is None:
        return 1
    if type(value) is not int or value < 1:
        raise bad_request(f"{name} must be a whole number of at least 1.", name)
    return value


def _prompts(prompt: Any) -> int:
    if prompt is None:
        return 0
    if isinstance(prompt, list) and any(isinstance(item, str | list) for item in prompt):
        return len(prompt)
    return 1  # a string, or one prompt as token ids


def _embeds(embeds: Any) -> int:
    if embeds is None:
        return 0
    return len(embeds) if isinstance(embeds, list) else 1
