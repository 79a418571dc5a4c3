"""One tenant's requests, as its application sends them, with exact times."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx

from saltwall_security import answer_json
from saltwall_security.bounded_http import http_client
from saltwall_security.target import Target, Tenant

CHAT, COMPLETIONS, MODELS = "/chat/completions", "/completions", "/models"
TIMEOUT_S = 300.0
"""For a whole answer: under load a long one rightly takes minutes."""
IDLE_S = 1.0
"""A connection unused for longer is not used again: servers close theirs, many after 5 s."""
Headers = Mapping[str, str] | Sequence[tuple[str, str]]
"""In pairs where a name comes twice; those of the client's own give way."""

_JSON = ((b"content-type", b"application/json"),)


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
        found = (answer_json.members(self.body) or {}).get("error")
        return found if isinstance(found, dict) else {}


class Client:
    """Speaks as one tenant. It never retries: what is measured is one request.

    An answer that does not come, breaks off, takes more than `TIMEOUT_S`, or is too long to be
    one, raises an `httpx.HTTPError`.
    """

    def __init__(self, target: Target, tenant: Tenant) -> None:
        self.target, self.tenant = target, tenant
        headers = {"authorization": f"Bearer {tenant.key}"} if tenant.key else {}
        self._http = http_client(
            TIMEOUT_S,
            base_url=target.url,
            headers=headers,
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
        listed = answer_json.members(answer.body) or {}
        try:
            return {str(row["id"]): row.get("parent") for row in listed["data"]}
        except (KeyError, TypeError, AttributeError):
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
        async with _in_time():
            response = await self._http.request(
                method, path, content=content, headers=[*given, *_pairs(headers)]
            )
        took = time.perf_counter() - began
        found = answer_json.members(response.content) or {}
        usage = answer_json.usage(found)
        return Answer(
            response.status_code,
            response.headers,
            response.content,
            answer_json.generated(found),
            answer_json.cached_tokens(usage),
            answer_json.prompt_tokens(usage),
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
        opened = self._http.stream("POST", path, content=content, headers=given)
        async with _in_time(), opened as response:
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
                event = answer_json.members(line[6:])
                if event is None:
                    raise httpx.DecodingError("an event is no JSON")
                usage = {**usage, **answer_json.usage(event)}
                if event.get("choices") or str(event.get("type")).endswith("delta"):
                    times.append(now - began)
                    texts.append(answer_json.generated(event))
        took = time.perf_counter() - began
        gaps = tuple(later - earlier for earlier, later in pairwise(times))
        return Answer(
            response.status_code,
            response.headers,
            "\n".join(raw).encode(),
            "".join(texts),
            answer_json.cached_tokens(usage),
            answer_json.prompt_tokens(usage),
            times[0] if times else took,
            took,
            gaps,
            usage,
        )


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield
    except TimeoutError:
        raise httpx.ReadTimeout(f"no whole answer in {TIMEOUT_S:.0f} s") from None


def _pairs(headers: Headers) -> list[tuple[bytes, bytes]]:
    """In UTF-8: names of tenants are sent, and need not be ASCII."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name.encode(), value.encode()) for name, value in pairs]
