"""The generation routes of OpenAI-compatible servers, and how a prompt is sent to each."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from saltwall_security.client import CHAT, COMPLETIONS, Answer, Client, Headers

TOKENS_PER_WORD = 3
AFTER_SYSTEM = "Go on."
LEAST_ID, IDS = 300, 5000
"""Token ids that every common vocabulary has, and that are none of its special ones."""


@dataclass(frozen=True)
class Route:
    """A way to have something generated.

    Args:
        path: below "/v1", or from the server's root if `rooted`.
        body: the request for a prompt of words, without a model.
        streams: whether it can be asked to stream.
        streaming: what makes its stream count tokens.
        system: fields that make the prompt a system's, before a user's message.
    """

    name: str
    path: str
    body: Callable[[str], Mapping[str, Any]]
    streams: bool = True
    rooted: bool = False
    streaming: Mapping[str, Any] = field(default_factory=dict)
    system: Callable[[str], Mapping[str, Any]] | None = None

    async def ask(
        self,
        client: Client,
        prompt: str,
        extra: Mapping[str, Any] = MappingProxyType({}),
        headers: Headers = (),
        *,
        stream: bool = False,
    ) -> Answer:
        """Sends a prompt, with further fields and headers."""
        base = client.target.url.removesuffix("/").removesuffix("/v1")
        path = f"{base}{self.path}" if self.rooted else self.path
        streaming = {"stream": True, **self.streaming} if stream else {}
        return await client.ask(path, {**self.body(prompt), **streaming, **extra}, headers)


def as_ids(prompt: str) -> list[int]:
    """Token ids that depend on the words, several a word."""
    ids: list[int] = []
    for at, word in enumerate(prompt.split()):
        digest = hashlib.sha256(f"{at} {word}".encode()).digest()
        ids += [
            LEAST_ID + int.from_bytes(digest[2 * i : 2 * i + 2], "big") % IDS
            for i in range(TOKENS_PER_WORD)
        ]
    return ids


def _said(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]


def _ruled(prompt: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": prompt}, *_said(AFTER_SYSTEM)]


CHAT_ROUTE: Final = Route(
    "chat",
    CHAT,
    lambda text: {"messages": _said(text), "max_tokens": 1},
    system=lambda text: {"messages": _ruled(text)},
)
PLAIN_ROUTE: Final = Route(
    "completions", COMPLETIONS, lambda text: {"prompt": text, "max_tokens": 1}
)
ROUTES: Final[Sequence[Route]] = (
    CHAT_ROUTE,
    PLAIN_ROUTE,
    Route("token-ids", COMPLETIONS, lambda text: {"prompt": as_ids(text), "max_tokens": 1}),
    Route(
        "responses",
        "/responses",
        lambda text: {"input": text, "max_output_tokens": 16},
        system=lambda text: {"instructions": text, "input": AFTER_SYSTEM},
    ),
    Route(
        "messages",
        "/messages",
        lambda text: {"messages": _said(text), "max_tokens": 1},
        system=lambda text: {"system": text, "messages": _said(AFTER_SYSTEM)},
    ),
    Route(
        "chat-batch",
        "/chat/completions/batch",
        lambda text: {"messages": [_said(text)], "max_tokens": 1},
        streams=False,
        system=lambda text: {"messages": [_ruled(text)]},
    ),
    Route(
        "generate",
        "/inference/v1/generate",
        lambda text: {"token_ids": as_ids(text), "sampling_params": {"max_tokens": 1}},
        rooted=True,
        streaming={"stream_options": {"include_usage": True}},
    ),
    Route(
        "invocations",
        "/invocations",
        lambda text: {"messages": _said(text), "max_tokens": 1},
        rooted=True,
        streaming={"stream_options": {"include_usage": True}},
        system=lambda text: {"messages": _ruled(text)},
    ),
)
