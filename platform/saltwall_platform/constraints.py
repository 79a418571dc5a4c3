"""Bounds on structured output: a schema, regex or grammar is a program that the engine compiles.

vLLM compiles for all tenants on one thread, and a compilation cannot be cancelled; its compilers
take time, memory or stack that grow faster than their input. The bounds were measured with
xgrammar, the only compiler that a Saltwall engine uses.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from saltwall_platform.errors import bad_request

MAX_PATTERN_CHARS = 1000
MAX_PATTERN_REPEATS = 64
"""Quantifiers `*`, `+` and `?` in one regex or grammar: compile time grows with their square."""
MAX_COUNTED_REPEATS = 10_000
"""The product of all counts `{n}` in one regex or grammar."""
MAX_NESTING = 50
"""Brackets within brackets in one regex or grammar, which compilers follow by recursion."""
MAX_LENGTH = 10_000
"""What `minItems`, `maxLength` and their like may ask for."""

_LENGTHS = frozenset(
    {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}
)
_PATTERNS = frozenset({"pattern", "regex", "grammar", "patternProperties"})
_ENCODED = frozenset({"json", "structural_tag", "schema", "json_schema"})


def check_constraints(document: dict[str, Any], max_bytes: int) -> None:
    """Checks what a request asks its answer to look like.

    Args:
        document: the request.
        max_bytes: the most that all its schemas, regexes and grammars may hold together (UTF-8);
            0 refuses structured output.

    Raises:
        ApiError: 400; over a bound, which is named.
    """
    for name, constraint in _constraints(document):
        try:
            size = len(json.dumps(constraint, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        except RecursionError:
            raise bad_request(f"{name} is nested too deeply.", name) from None
        if size > max_bytes:
            raise bad_request(
                f"{name} has {size} bytes of schema, regex or grammar; at most {max_bytes} are"
                " compiled here.",
                name,
            )
        _check(name, constraint)


def _constraints(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    form = document.get("response_format")
    if form is not None and form != {"type": "text"}:
        yield "response_format", form
    for name, value in document.items():
        if value is not None and (name == "structured_outputs" or name.startswith("guided_")):
            yield name, value
    schemas = []
    forced = document.get("tool_choice") not in (None, "none", "auto")
    tools = document.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        function = tool.get("function") if isinstance(tool, dict) else None
        if isinstance(function, dict) and (forced or function.get("strict")):
            schemas.append(function.get("parameters"))
    if schemas:
        yield "tools", schemas


def _check(name: str, constraint: Any) -> None:
    rest: list[tuple[str, Any]] = [(name.removeprefix("guided_"), constraint)]
    while rest:
        key, value = rest.pop()
        if isinstance(value, dict):
            rest += value.items()
            if key in _PATTERNS:
                rest += [(key, pattern) for pattern in value]
        elif isinstance(value, list):
            rest += [(key, item) for item in value]
        elif isinstance(value, str):
            decoded = _decoded(value) if key in _ENCODED else None
            if decoded is not None:
                rest.append((key, decoded))
            elif key in _PATTERNS or key in _ENCODED:
                _check_pattern(name, value)
        elif key in _LENGTHS and isinstance(value, int | float) and value > MAX_LENGTH:
            raise bad_request(f"{name}: {key} is over {MAX_LENGTH}.", name)


def _decoded(text: str) -> Any:
    """A schema that was written into a string; None if it is no JSON object or list."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _check_pattern(name: str, pattern: str) -> None:
    limit = None
    if len(pattern) > MAX_PATTERN_CHARS:
        limit = f"longer than {MAX_PATTERN_CHARS} characters"
    elif len(re.findall(r"[*+?]", pattern)) > MAX_PATTERN_REPEATS:
        limit = f"made of more than {MAX_PATTERN_REPEATS} repetitions"
    elif _counts(pattern) > MAX_COUNTED_REPEATS:
        limit = f"repeated more than {MAX_COUNTED_REPEATS} times"
    elif _nesting(pattern) > MAX_NESTING:
        limit = f"nested more than {MAX_NESTING} deep"
    if limit:
        raise bad_request(f"{name}: a regex or grammar is {limit}.", name)


def _counts(pattern: str) -> int:
    counts = re.findall(r"\{\s*(\d*)\s*(?:,\s*(\d*)\s*)?\}", pattern)
    return math.prod(max(int(low or 1), int(high or 1), 1) for low, high in counts)


def _nesting(pattern: str) -> int:
    """Opening brackets without their closing ones, at the most; an escape counts as a bracket."""
    depth = deepest = 0
    for char in pattern:
        if char in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in ")]}" and depth:
            depth -= 1
    return deepest
