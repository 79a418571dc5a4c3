"""One tenant's requests, as its application sends them, with exact times."""

import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx

from saltwall_security.target import Target, Tenant
from saltwall_security.trust import system_trust

CHAT, COMPLETIONS, MODELS = "/chat/completions", "/completions", "/models"
TIMEOUT_S = 300.0
IDLE_S = 1.0
"""A connection unused for longer is not used again: servers close theirs, many after 5 s."""
Headers = Mapping[str, str] | Sequence[tuple[str, str]]
"""In pairs where a name comes twice; those of the client's own give way."""

_JSON = (("content-type", "application/json"),)


@dataclass(frozen=True)
class Answer:
    """What a server answered to one request.

    Args:
        status: the HTTP status.
        cached_tokens: prompt tokens that were found cached; None where the server does not say.
        ttft_s: from sending to the first event with a choice in it (the whole answer, if it was not
            streamed).
        gaps_s: between the events after it.
        took_s: from sending to the end.
        usage: the server's, as it is.
        error: the error object, for refusals.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    text: str
    cached_tokens: int | None
    prompt_tokens: int | None
    ttft_s: float
    took_s: float
    gaps_s: tuple[float, ...] = ()
    usage: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the server did as asked."""
        return self.status == 200

    @property
    def error(self) -> Mapping[str, Any]:
        """The error object of a refusal; empty if it has none."""
        try:
            found = json.loads(self.body).get("error", {})
        except (ValueError, AttributeError):
            return {}
        return found if isinstance(found, dict) else {}


class Client:
    """Speaks as one tenant. It never retries: what is measured is one request."""

    def __init__(self, target: Target, tenant: Tenant) -> None:
        self.target, self.tenant = target, tenant
        headers = {"authorization": f"Bearer {tenant.key}"} if tenant.key else {}
        self._http = httpx.AsyncClient(
            base_url=target.url,
            headers=headers,
            timeout=TIMEOUT_S,
            trust_env=False,
            verify=system_trust(),
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=64, keepalive_expiry=IDLE_S
            ),
        )

    async def close(self) -> None:
        """Closes its connections."""
        await self._http.aclose()

    async def models(self) -> list[str]:
        """The ids of the models that the tenant may use."""
        return list(await self.parents())

    async def parents(self) -> dict[str, str | None]:
        """For each of these the model that it is an adapter of, where vLLM says that it is one."""
        answer = await self.send("GET", MODELS)
        if not answer.ok:
            return {}
        try:
            return {str(row["id"]): row.get("parent") for row in json.loads(answer.body)["data"]}
        except (ValueError, KeyError, TypeError, AttributeError):
            return {}

    async def complete(self, prompt: str | list[int], **fields: Any) -> Answer:
        """A completion of one token, unless `fields` say otherwise."""
        return await self.ask(COMPLETIONS, {"prompt": prompt, "max_tokens": 1, **fields})

    async def chat(self, content: str, **fields: Any) -> Answer:
        """A chat completion of one token, unless `fields` say otherwise."""
        messages = [{"role": "user", "content": content}]
        return await self.ask(CHAT, {"messages": messages, "max_tokens": 1, **fields})

    async def ask(self, path: str, fields: Mapping[str, Any], headers: Headers = ()) -> Answer:
        """Sends a request to a generation route; `stream` in the fields streams it."""
        body = self._body(fields)
        if body.get("stream"):
            if path in (CHAT, COMPLETIONS):
                body.setdefault("stream_options", {"include_usage": True})
            return await self._stream(path, body, headers)
        return await self.send("POST", path, body, headers)

    @asynccontextmanager
    async def opened(
        self, path: str, fields: Mapping[str, Any], headers: Headers = ()
    ) -> AsyncIterator[httpx.Response]:
        """A streamed answer of which nothing is read yet; the end of the block hangs up."""
        content = json.dumps(self._body({**fields, "stream": True})).encode()
        given = [*_JSON, *_pairs(headers)]
        async with self._http.stream("POST", path, content=content, headers=given) as response:
            yield response

    async def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        headers: Headers = (),
    ) -> Answer:
        """Sends any request, and reads the whole answer."""
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        given = _JSON if content is not None else ()
        began = time.perf_counter()
        response = await self._http.request(
            method, path, content=content, headers=[*given, *_pairs(headers)]
        )
        took = time.perf_counter() - began
        try:
            document = response.json()
        except ValueError:
            document = None
        found = document if isinstance(document, dict) else {}
        usage = _usage(found)
        return Answer(
            response.status_code,
            response.headers,
            response.content,
            _text(found),
            _cached(usage),
            _prompt(usage),
            took,
            took,
            usage=usage,
        )

    def _body(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.target.model, "temperature": 0}
        if self.tenant.cache_salt is not None:
            body["cache_salt"] = self.tenant.cache_salt
        return body | dict(fields)

    async def _stream(self, path: str, body: Mapping[str, Any], headers: Headers) -> Answer:
        content = json.dumps(body).encode()
        given = [*_JSON, *_pairs(headers)]
        raw, texts, times = [], [], []
        usage: Mapping[str, Any] = {}
        began = time.perf_counter()
        async with self._http.stream("POST", path, content=content, headers=given) as response:
            if response.is_error:
                await response.aread()
                took = time.perf_counter() - began
                return Answer(
                    response.status_code,
                    response.headers,
                    response.content,
                    "",
                    None,
                    None,
                    took,
                    took,
                )
            async for line in response.aiter_lines():
                now = time.perf_counter()
                if not line.startswith("data: {"):
                    continue
                raw.append(line)
                event = json.loads(line[6:])
                usage = {**usage, **_usage(event)}
                if event.get("choices") or str(event.get("type")).endswith("delta"):
                    times.append(now - began)
                    texts.append(_text(event))
        took = time.perf_counter() - began
        gaps = tuple(later - earlier for earlier, later in pairwise(times))
        return Answer(
            response.status_code,
            response.headers,
            "\n".join(raw).encode(),
            "".join(texts),
            _cached(usage),
            _prompt(usage),
            times[0] if times else took,
            took,
            gaps,
            usage,
        )


def _pairs(headers: Headers) -> list[tuple[str, str]]:
    return list(headers.items() if isinstance(headers, Mapping) else headers)


def _text(document: Mapping[str, Any]) -> str:
    """What was generated, of an answer or of one event of a stream (chat and completions)."""
    choice = (document.get("choices") or [{}])[0]
    message = choice.get("message") or choice.get("delta") or {}
    return str(choice.get("text") or message.get("content") or "")


def _usage(document: Mapping[str, Any]) -> dict[str, Any]:
    """Where OpenAI's three routes and Anthropic's messages put it, in answers and in streams."""
    for holder in (document, document.get("response"), document.get("message")):
        usage = holder.get("usage") if isinstance(holder, dict) else None
        if isinstance(usage, dict):
            return {name: value for name, value in usage.items() if value is not None}
    return {}


def _prompt(usage: Mapping[str, Any]) -> int | None:
    """Tokens of the prompt; Anthropic counts the cached ones apart."""
    if "prompt_tokens" in usage:
        return int(usage["prompt_tokens"])
    if "input_tokens" in usage:
        return int(usage["input_tokens"]) + int(usage.get("cache_read_input_tokens", 0))
    return None


def _cached(usage: Mapping[str, Any]) -> int | None:
    if "cache_read_input_tokens" in usage:
        return int(usage["cache_read_input_tokens"])
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    if not isinstance(details, dict):
        return None
    return int(details.get("cached_tokens") or 0)
