"""Requests that carry canaries down every path: answered, streamed, refused, malformed, cut off."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx

from saltwall_security.client import CHAT, COMPLETIONS, MODELS, Answer, Client
from saltwall_security.suites.secrecy.canaries import Canaries

AT_ONCE = 6
TIMEOUT_S = 30.0
LONG = 300

Send = Callable[[Client], Any]


@dataclass(frozen=True)
class Received:
    """What a server answered: status line and headers and body, as bytes to search."""

    status: int
    content: bytes


def requests(canaries: Canaries) -> Iterator[Send]:
    """All of them."""
    prompt, scope = canaries.prompt, canaries.scope
    said = [{"role": "user", "content": f'{prompt} "{prompt}" é/{prompt}'}]
    chat = {"messages": said, "max_tokens": 1, "cache_salt": scope, "user": prompt}
    for body in (
        chat,
        chat | {"stream": True},
        chat | {"n": 2, "temperature": 1},
        *_mistaken(chat, prompt, scope),
        chat | {"messages": prompt},
        chat | {"messages": [{"role": prompt, "content": {"x": prompt}}]},
        chat | {"messages": [{"role": "user", "content": [{"type": prompt, "text": prompt}]}]},
        chat | {"tools": [{"type": "function", "function": {"name": prompt, "parameters": 1}}]},
        chat | {"response_format": {"type": "json_schema", "json_schema": {"name": prompt}}},
        chat | {"structured_outputs": {"regex": f"({prompt}"}},
        chat | {"chat_template": "{{ " + prompt + " }"},
    ):
        yield _ask(CHAT, body)
    plain = {"prompt": prompt, "max_tokens": 1, "cache_salt": scope}
    ids = {**plain, "prompt": list(canaries.ids)}
    for body in (
        plain,
        plain | {"stream": True},
        plain | {"echo": True},
        ids,
        ids | {"max_tokens": 10**7},
        ids | {"prompt": [*canaries.ids, 10**9]},
        *_mistaken(plain, prompt, scope),
        plain | {"prompt": {prompt: prompt}},
        plain | {"suffix": prompt},
    ):
        yield _ask(COMPLETIONS, body)
    yield _ask("/responses", {"input": prompt, "max_output_tokens": 16, "cache_salt": scope})
    yield _ask("/messages", {"messages": said, "max_tokens": 1, "system": prompt})
    yield _ask("/embeddings", {"input": prompt, "user": prompt})
    yield from _malformed(canaries)


def _mistaken(body: Mapping[str, Any], prompt: str, scope: str) -> list[dict[str, Any]]:
    wrong: list[dict[str, Any]] = [
        {"model": prompt},
        {"max_tokens": prompt},
        {"max_tokens": -1},
        {"max_tokens": 10**7},
        {"n": 10_000},
        {"temperature": prompt, "logit_bias": {prompt: 1}},
        {"stop": [prompt] * 500},
        {"cache_salt": [scope, prompt]},
        {"cache_salt": scope * 40},
        {"priority": prompt, "request_id": prompt, "session_id": scope},
        {"kv_transfer_params": {prompt: scope}},
        {"vllm_xargs": {prompt: scope}},
        {prompt: prompt},
    ]
    return [{**body, **fields} for fields in wrong]


def _malformed(canaries: Canaries) -> Iterator[Send]:
    prompt, key = canaries.prompt, canaries.credential
    good = {"prompt": prompt, "max_tokens": 1}
    text = json.dumps({"model": prompt, **good})
    for body in (
        f'{{"{prompt}": ',
        text[:-1],
        f"{text}{prompt}",
        f'["{prompt}"]',
        f'"{prompt}"',
        f'{{"prompt": "{prompt}\\ud800", "model": "{prompt}"}}',
    ):
        yield _send("POST", COMPLETIONS, body.encode())
    yield _send("POST", COMPLETIONS, b"\xff\xfe" + prompt.encode())
    yield _send("POST", f"/{prompt}", text.encode())
    yield _send("POST", f"{COMPLETIONS}/{prompt}?q={prompt}", text.encode())
    yield _send("GET", f"{MODELS}/{prompt}")
    yield _send("GET", f"{MODELS}?api_key={key}")
    yield _send("DELETE", f"{CHAT}/{prompt}")
    yield _send("POST", COMPLETIONS, text.encode(), {"content-type": f"text/{prompt}"})
    named = ("x-request-id", "traceparent", "user-agent", "x-saltwall-seal", "x-session-id")
    for name in named:
        yield _ask(COMPLETIONS, good, {name: prompt})
    for credential in (f"Bearer {key}", f"Bearer sw_live_{key[:12]}_{key}", f"Basic {key}", key):
        yield _ask(COMPLETIONS, good, {"authorization": credential})
    yield _ask(COMPLETIONS, good, {"x-api-key": key, "api-key": key})
    yield lambda client: _cut(client, {**good, "max_tokens": LONG, "ignore_eos": True})


async def provoke(client: Client, canaries: Canaries) -> list[Received]:
    """Sends all of them as a tenant; what was answered."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(send: Send) -> Received | None:
        async with gate:
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    answer = await send(client)
            except (httpx.HTTPError, TimeoutError, UnicodeError, ValueError):
                return None
        return None if answer is None else received(answer)

    answers = await asyncio.gather(*(one(send) for send in requests(canaries)))
    return [answer for answer in answers if answer is not None]


def received(answer: Answer) -> Received:
    """An answer, its headers included."""
    headers = "\n".join(f"{name}: {value}" for name, value in answer.headers.items())
    return Received(answer.status, headers.encode() + b"\n\n" + answer.body)


def _ask(path: str, fields: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Send:
    return lambda client: client.ask(path, fields, headers or {})


def _send(
    method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Send:
    return lambda client: client.send(method, path, body, headers or {})


async def _cut(client: Client, fields: Mapping[str, Any]) -> None:
    with suppress(httpx.HTTPError):
        async with client.opened(COMPLETIONS, fields) as response:
            async for _ in response.aiter_lines():
                return
