"""Strict JSON: what two parsers could read differently is refused, and all else keeps its value."""

import json
import math
from typing import Any, NoReturn

from saltwall_platform.errors import bad_request
from saltwall_tenants.wire import embed_ticket


def parse_object(body: bytes) -> dict[str, Any]:
    """Parses a request body.

    Raises:
        ApiError: 400; not one UTF-8 JSON object, a name twice in one object, a number that JSON
            cannot hold (NaN, Infinity, 1e999, thousands of digits), or nested too deeply.
    """
    try:
        document = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_bounded,
        )
    except UnicodeDecodeError:
        raise bad_request("The body is not UTF-8.") from None
    except RecursionError:
        raise bad_request("The body is nested too deeply.") from None
    except ValueError as error:  # its text may quote the body
        position = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise bad_request(f"The body is not valid JSON{position}.") from None
    if not isinstance(document, dict):
        raise bad_request("The body must be a JSON object.")
    return document


def serialise(document: dict[str, Any], ticket: str) -> bytes:
    """Writes compact UTF-8 JSON, the ticket first: the engine finds it there unparsed.

    Raises:
        ApiError: 400; a string holds half of a surrogate pair, which is no text, or is too deep.
    """
    try:
        return embed_ticket(document, ticket)
    except UnicodeEncodeError:
        raise bad_request("A string in the body holds half of a surrogate pair.") from None
    except RecursionError:
        raise bad_request("The body is nested too deeply.") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise bad_request("The body has an object with the same name twice.")
    return members


def _no_constant(name: str) -> NoReturn:
    raise bad_request(f"{name} is not JSON.")


def _bounded(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:  # what the engine's processes can tell each other
        raise bad_request("A number in the body is out of range.")
    return number


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise bad_request("A number in the body is out of range.")
    return number
