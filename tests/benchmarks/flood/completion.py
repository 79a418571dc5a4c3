"""One request to an OpenAI-compatible server, timed as its sender sees it."""

import json
import time
from dataclasses import dataclass
from typing import Any

import httpx

TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Answer:
    """What came back: times in seconds, and the server's own counts of tokens."""

    ttft_s: float
    """Until the first event of the stream."""
    token_s: float
    """Between one token and the next, on average: how long the engine's steps took."""
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    @property
    def hit_rate(self) -> float:
        """The part of the prompt that was cached."""
        return self.cached_tokens / self.prompt_tokens


def connect(base_url: str, key: str) -> httpx.AsyncClient:
    """A client of its own, as each tenant's program has one."""
    return httpx.AsyncClient(
        base_url=base_url,
        headers={"authorization": f"Bearer {key}"},
        timeout=TIMEOUT_S,
        trust_env=False,
    )


async def complete(
    client: httpx.AsyncClient, prompt: str, *, leave: bool = False, **options: Any
) -> Answer:
    """Streams one completion of exactly `max_tokens` tokens.

    Args:
        leave: hang up at the first byte of the answer; what it used is then unknown, and 0.

    Raises:
        httpx.HTTPStatusError: the server refused, before the stream or in it.
    """
    body = {
        "model": "demo",
        "prompt": prompt,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        **options,
    }
    began = time.monotonic()
    first = last = 0.0
    usage: dict[str, Any] = {}
    async with client.stream("POST", "/completions", json=body) as response:
        if response.is_error:
            await response.aread()
            raise _refused(response, response.text)
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            if leave:
                return Answer(time.monotonic() - began, 0, 0, 0, 0)
            event = json.loads(line.removeprefix("data: "))
            if "error" in event:
                raise _refused(response, str(event["error"]))
            if event["choices"]:
                last = time.monotonic()
                first = first or last
            usage = event.get("usage") or usage
    if not usage:
        raise _refused(response, "the stream ended without usage")
    details = usage.get("prompt_tokens_details") or {}
    return Answer(
        first - began,
        (last - first) / max(1, usage["completion_tokens"] - 1),
        usage["prompt_tokens"],
        details.get("cached_tokens") or 0,
        usage["completion_tokens"],
    )


def _refused(response: httpx.Response, why: str) -> httpx.HTTPStatusError:
    text = f"{response.status_code} {why[:200]}"
    return httpx.HTTPStatusError(text, request=response.request, response=response)
