"""A client that goes away leaves no request behind in the engine a second later."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from prompts import LONG, arguments
from running_stack import Stack, eventually

DEADLINE_S = 1.0
"""The contract; a busy test machine is given five times as long before the test fails."""

ENDLESS: dict[str, Any] = {"max_tokens": 3000, "min_tokens": 3000}


def open_stream(stack: Stack, body: dict[str, Any]) -> tuple[httpx.Client, Any]:
    """Sends a request whose answer nobody reads yet."""
    client = httpx.Client(timeout=120, trust_env=False)
    headers = {"authorization": f"Bearer {stack.keys['acme']}"}
    url = f"{stack.base_url}/chat/completions"
    return client, client.stream("POST", url, headers=headers, json=body)


def leaves_nothing(stack: Stack, record: Callable[[str, object], None]) -> None:
    """The engine is idle soon after; how soon is reported."""
    after = eventually(lambda: stack.busy() == 0, 5 * DEADLINE_S)
    record("engine_idle_after_s", round(after, 3))


def usage_rows(stack: Stack) -> int:
    """Settled requests of acme."""
    shown = json.loads(stack.saltwall("tenant", "show", "acme", "--json").stdout)
    return int(shown["requests"])


def test_in_the_middle_of_a_stream(
    stack: Stack, record_property: Callable[[str, object], None]
) -> None:
    """Closed after a few tokens; what was generated is settled all the same."""
    before = usage_rows(stack)
    body = arguments("chat", "Count upwards.", stream=True, **ENDLESS)
    client, opening = open_stream(stack, body)
    with client, opening as response:
        lines = response.iter_lines()
        for _ in range(10):
            next(lines)
        assert stack.busy() == 1
    leaves_nothing(stack, record_property)
    eventually(lambda: usage_rows(stack) > before, 10)


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])
def test_before_the_first_token(
    stack: Stack, record_property: Callable[[str, object], None], stream: bool
) -> None:
    """Closed while the prompt is still being computed, or while the whole answer is awaited."""
    text = f"{stream} {LONG * 6}"
    body = arguments(
        "chat", text, stream=stream, **(ENDLESS | {"max_tokens": 900, "min_tokens": 900})
    )
    client = httpx.Client(timeout=httpx.Timeout(120, read=0.7), trust_env=False)
    headers = {"authorization": f"Bearer {stack.keys['acme']}"}
    with client, pytest.raises(httpx.ReadTimeout):
        client.post(f"{stack.base_url}/chat/completions", headers=headers, json=body)
    leaves_nothing(stack, record_property)


def test_the_control_a_client_that_stays_keeps_its_request(stack: Stack) -> None:
    """While the connection is open the engine goes on working."""
    body = arguments("chat", "Count upwards.", stream=True, **ENDLESS)
    client, opening = open_stream(stack, body)
    with client, opening as response:
        lines = response.iter_lines()
        for _ in range(80):
            next(lines)
        assert stack.busy() == 1
    eventually(lambda: stack.busy() == 0, 5 * DEADLINE_S)
