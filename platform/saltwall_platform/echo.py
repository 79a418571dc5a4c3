"""An engine's error message without what it quotes of the request: prompts do not go into errors.

What tells the client what to do stays: the field, the rule and its numbers.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

RUN = 12
"""A run of this many characters that the message shares with the request is a quotation."""
MAX_MESSAGE_CHARS = 2000
EXACT_CHARS = 200_000
"""Up to here every run is found; in longer requests those of at least twice the length."""
STRUCK = "[…]"

_VALIDATION = re.compile(r"\d+ validation errors?:\n")
_INPUT = re.compile(r" \[type=[^\n]*")
"""The end of a line of pydantic's own text, which quotes the offending input."""
_FIELD_NAME = re.compile(r"[a-z_]{1,40}")


def without_echo(message: str, document: dict[str, Any]) -> str:
    """Strikes out of an engine's message what the request itself said.

    Args:
        message: the message; of a list of validation errors, each field and rule are kept.
        document: the request. Its model's name is no quotation, nor are plain field names.
    """
    message = _without_inputs(message[:MAX_MESSAGE_CHARS])
    runs = {message[i : i + RUN] for i in range(len(message) - RUN + 1)}
    quoted: set[str] = set()
    texts = list(_texts({k: v for k, v in document.items() if k != "model"}))
    stride = 1 if sum(map(len, texts)) <= EXACT_CHARS else RUN
    for text in texts:
        for start in range(0, len(text) - RUN + 1, stride):
            if (run := text[start : start + RUN]) in runs:
                quoted.add(run)
    struck = [False] * len(message)
    for run in quoted:
        for found in re.finditer(f"(?={re.escape(run)})", message):
            struck[found.start() : found.start() + RUN] = [True] * RUN
    kept = "".join("\0" if gone else char for char, gone in zip(message, struck, strict=True))
    return re.sub("\0+", STRUCK, kept)


def _without_inputs(message: str) -> str:
    """pydantic's errors, one a line, as `field: rule`; they hold the offending input besides."""
    opening = _VALIDATION.match(message)
    if opening is None:
        return _INPUT.sub("", message)
    rules: dict[str, None] = {}
    for line in message[opening.end() :].splitlines():
        try:
            error = ast.literal_eval(line.strip())
            rules[f"{error['loc']}: {error['msg']}"] = None
        except (ValueError, SyntaxError, KeyError, TypeError, MemoryError, RecursionError):
            continue  # cut off, or not what was expected: nothing of it is known to be safe
    return "; ".join(rules) or "A field of the request is not valid."


def _texts(value: Any) -> Iterator[str]:
    """Every string of a document, and every key that is no plain field name."""
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            rest += item
        elif isinstance(item, dict):
            rest += item.values()
            rest += [key for key in item if not _FIELD_NAME.fullmatch(key)]
