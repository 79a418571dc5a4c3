"""One tenant's schema cannot take the engine from the others."""

import json
from typing import Any

import pytest

from saltwall_platform.constraints import check_constraints
from saltwall_platform.errors import ApiError

LIMIT = 16_384
DATE = {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z$"}
UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 200},
        "born": DATE,
        "id": {"type": "string", "pattern": UUID},
        "friends": {"type": "array", "items": {"$ref": "#"}, "minItems": 0, "maxItems": 100},
        "balance": {"type": "integer", "maximum": 10**15},
    },
    "required": ["name"],
}


def response_format(schema: Any) -> dict[str, Any]:
    """As chat clients send a schema."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return {"response_format": form}


def structured(**constraint: Any) -> dict[str, Any]:
    """As vLLM's own clients send a constraint."""
    return {"structured_outputs": constraint}


def tool(schema: Any, choice: Any = None, **more: Any) -> dict[str, Any]:
    """A request with one tool."""
    function = {"name": "f", "parameters": schema} | more
    return {"tools": [{"type": "function", "function": function}], "tool_choice": choice}


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "json_object"}},
        response_format(PERSON),
        structured(json=PERSON),
        structured(json=json.dumps(PERSON)),
        structured(regex=UUID),
        structured(choice=["yes", "no"]),
        structured(grammar='root ::= "a" | "b" root'),
        tool(PERSON, "required"),
        tool({"description": "x" * 100_000, "pattern": "(" * 100_000}, "auto"),
    ],
)
def test_ordinary_constraints_pass(document: dict[str, Any]) -> None:
    """What people write passes; a tool that is not enforced is not compiled, so is not bounded."""
    check_constraints(document, LIMIT)


MANY = {f"p{i}": {"type": "string"} for i in range(5_000)}
REFS = {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(5_000)}
TOO_MUCH = {
    "huge array": {"type": "array", "minItems": 2**40},
    "long string": {"type": "string", "maxLength": 10_001},
    "deep pattern": {"type": "string", "pattern": "(" * 51 + "a" + ")" * 51},
    "many repeats": {"type": "string", "pattern": ".*" * 65},
    "nested counts": {"type": "string", "pattern": "(a{200}){200}"},
    "open count": {"type": "string", "pattern": "(a{,200}){200,}"},
    "long pattern": {"type": "string", "pattern": "a" * 1001},
    "pattern as a name": {"type": "object", "patternProperties": {"(" * 60: {}}},
    "many properties": {"type": "object", "properties": MANY},
    "long chain": {"$ref": "#/$defs/a0", "$defs": REFS},
}


@pytest.mark.parametrize("schema", TOO_MUCH.values(), ids=TOO_MUCH.keys())
def test_a_schema_over_a_bound_is_refused_wherever_it_stands(schema: Any) -> None:
    """As response format, in vLLM's field, inside a string, behind lists, as an enforced tool."""
    for document in (
        response_format(schema),
        structured(json=schema),
        structured(json=json.dumps(schema)),
        structured(structural_tag=json.dumps({"structures": [{"schema": schema}]})),
        {"response_format": {"type": "structural_tag", "format": {"json_schema": schema}}},
        {"guided_json": schema},
        response_format({"anyOf": [{"type": "null"}, {"allOf": [schema]}]}),
        tool(schema, "required"),
        tool(schema, {"type": "function", "function": {"name": "f"}}),
        tool(schema, "auto", strict=True),
    ):
        with pytest.raises(ApiError) as caught:
            check_constraints(document, LIMIT)
        assert caught.value.status == 400


@pytest.mark.parametrize("name", ["regex", "grammar"])
@pytest.mark.parametrize("text", ["(" * 51, ".*" * 65, "(a{200}){200}", "a" * 1001])
def test_a_regex_or_grammar_over_a_bound_is_refused(name: str, text: str) -> None:
    """The bounds of patterns hold for whole regexes and grammars."""
    for document in (structured(**{name: text}), {f"guided_{name}": text}):
        with pytest.raises(ApiError, match="regex or grammar"):
            check_constraints(document, LIMIT)


def test_structured_output_can_be_switched_off() -> None:
    """With a limit of zero every constraint is refused, and plain requests are served."""
    check_constraints({"messages": []}, 0)
    with pytest.raises(ApiError):
        check_constraints(structured(choice=["a"]), 0)
