"""What the JSON of an answer says; nothing, where it is not what it should be."""

import json
from collections.abc import Mapping
from typing import Any, Final

MOST_TOKENS: Final = 2**53
"""Whatever is more, or not finite, counts nothing."""


def members(text: str | bytes) -> dict[str, Any] | None:
    """The members of an object; None if it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def generated(document: Mapping[str, Any]) -> str:
    """What was generated, of an answer or of one event of a stream (chat and completions)."""
    choices = document.get("choices")
    choice = _object(choices[0]) if isinstance(choices, list) and choices else {}
    message = _object(choice.get("message") or choice.get("delta"))
    return str(choice.get("text") or message.get("content") or "")


def usage(document: Mapping[str, Any]) -> dict[str, Any]:
    """Where OpenAI's three routes and Anthropic's messages put it, in answers and in streams."""
    for holder in (document, document.get("response"), document.get("message")):
        found = _object(holder).get("usage")
        if isinstance(found, dict):
            return {name: value for name, value in found.items() if value is not None}
    return {}


def prompt_tokens(counted: Mapping[str, Any]) -> int | None:
    """Tokens of the prompt, of a usage; Anthropic counts the cached ones apart."""
    if "prompt_tokens" in counted:
        return _count(counted["prompt_tokens"])
    new, cached = (
        _count(counted.get(name, default))
        for name, default in (("input_tokens", None), ("cache_read_input_tokens", 0))
    )
    return None if new is None or cached is None else new + cached


def cached_tokens(counted: Mapping[str, Any]) -> int | None:
    """Those of them that were found cached; None where that is not said."""
    if "cache_read_input_tokens" in counted:
        return _count(counted["cache_read_input_tokens"])
    details = counted.get("prompt_tokens_details") or counted.get("input_tokens_details")
    return _count(details.get("cached_tokens") or 0) if isinstance(details, dict) else None


def _object(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _count(found: Any) -> int | None:
    return int(found) if isinstance(found, int | float) and abs(found) <= MOST_TOKENS else None
