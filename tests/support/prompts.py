"""Long prompts, and how to ask for them on every route, whole and streamed."""

import itertools
from typing import Any

from running_stack import Stack

LONG = "The quick brown fox jumps over the lazy dog near the old salt wall. " * 28
_numbers = itertools.count(1)


def prompt() -> str:
    """Some 450 tokens that no earlier test has sent."""
    return f"Document {next(_numbers)} of the isolation tests. {LONG}"


def arguments(route: str, text: str, **more: Any) -> dict[str, Any]:
    """A short greedy request of either kind."""
    content: dict[str, Any] = {"prompt": text}
    if route == "chat":
        content = {"messages": [{"role": "user", "content": text}]}
    return {"model": "demo", "max_tokens": 3, "temperature": 0} | content | more


def resource(client: Any, route: str) -> Any:
    """Where the official client keeps a route."""
    return client.chat.completions if route == "chat" else client.completions


def send(stack: Stack, tenant: str, route: str, text: str, *, stream: bool, **more: Any) -> int:
    """Sends a request; returns how many of its prompt tokens were cached."""
    create = resource(stack.client(tenant), route).create
    if not stream:
        usage = create(**arguments(route, text, **more)).usage
    else:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = list(create(**arguments(route, text, **options, **more)))
        assert sum(len(chunk.choices) for chunk in chunks) >= 1
        usage = chunks[-1].usage
    assert usage.prompt_tokens > 400
    return int(usage.prompt_tokens_details.cached_tokens)


async def send_async(stack: Stack, tenant: str, route: str, text: str, *, stream: bool) -> int:
    """The same through the asynchronous client."""
    async with stack.async_client(tenant) as client:
        create = resource(client, route).create
        if not stream:
            usage = (await create(**arguments(route, text))).usage
        else:
            options = {"stream": True, "stream_options": {"include_usage": True}}
            async for chunk in await create(**arguments(route, text, **options)):
                usage = chunk.usage
    return int(usage.prompt_tokens_details.cached_tokens)
