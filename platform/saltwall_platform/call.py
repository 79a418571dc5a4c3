"""A client's request made ours: the fields the gateway owns are taken out, the rest stays."""

from dataclasses import dataclass, field
from typing import Any

from saltwall_platform.constraints import check_constraints
from saltwall_platform.errors import bad_request
from saltwall_platform.json_body import parse_object, serialise
from saltwall_platform.no_store import settle_no_store
from saltwall_platform.sequences import choices_per_prompt, count_sequences
from saltwall_tenants.wire import MAX_SCOPE_BYTES

# Set by the gateway or by nobody: they steer the cache, the scheduler or another host's memory.
OWNED = (
    "cache_salt",
    "priority",
    "request_id",
    "session_id",
    "kv_transfer_params",
    "ec_transfer_params",
)


@dataclass(frozen=True)
class Call:
    """What of a request outlives its body.

    `wants_usage` and `wants_running_usage` are what the client itself asked its stream to hold.
    `choices_per_prompt` is `n`.
    """

    model: str
    scope: str = field(repr=False)
    stream: bool
    wants_usage: bool
    wants_running_usage: bool
    sequences: int
    choices_per_prompt: int
    document: dict[str, Any] = field(repr=False)

    def encode(self, *, request_id: str, ticket: str, running_usage: bool) -> bytes:
        """The body for the engine.

        Args:
            request_id: what the engine calls the request too.
            running_usage: ask for token counts in every chunk of a stream, not at its end only.

        Raises:
            ApiError: 400; the document cannot be written as UTF-8 JSON.
        """
        document = {**self.document, "request_id": request_id}
        if self.stream:
            document["stream_options"] = {
                **(document.get("stream_options") or {}),
                "include_usage": True,
                "continuous_usage_stats": running_usage or self.wants_running_usage,
            }
        return serialise(document, ticket)


def read_call(
    body: bytes, *, max_sequences: int, max_constraint_bytes: int, no_store: bool = False
) -> Call:
    """Parses a body once, and takes the owned fields out.

    Args:
        body: the client's, as it came.
        max_sequences: the most that it may ask for.
        max_constraint_bytes: the most of schemas, regexes and grammars in it.
        no_store: the client wants nothing of it cached.

    Raises:
        ApiError: 400, with what to change.
    """
    document = parse_object(body)
    model = document.get("model")
    if not isinstance(model, str) or not model:
        raise bad_request("Name a model: GET /v1/models lists them.", "model")
    stream = _flag(document, "stream")
    usage, running = _usage_options(document, stream)
    sequences = count_sequences(document, max_sequences)
    check_constraints(document, max_constraint_bytes)
    scope = _scope(document.get("cache_salt"))
    settle_no_store(document, no_store)
    for name in OWNED:
        document.pop(name, None)
    _strip_nested(document)
    return Call(
        model=model,
        scope=scope,
        stream=stream,
        wants_usage=usage,
        wants_running_usage=usage and running,
        sequences=sequences,
        choices_per_prompt=choices_per_prompt(document),
        document=document,
    )


def _scope(value: Any) -> str:
    if value is None:
        return ""
    try:
        if isinstance(value, str) and len(value.encode("utf-8")) <= MAX_SCOPE_BYTES:
            return value
    except UnicodeEncodeError:
        pass
    raise bad_request(
        f"cache_salt must be a string of at most {MAX_SCOPE_BYTES} bytes in UTF-8.", "cache_salt"
    )


def _flag(fields: dict[str, Any], name: str, within: str = "") -> bool:
    value = fields.get(name)
    if not isinstance(value, bool | None):
        raise bad_request(f"{within}{name} must be true or false.", f"{within}{name}")
    return bool(value)


def _usage_options(document: dict[str, Any], stream: bool) -> tuple[bool, bool]:
    options = document.get("stream_options")
    if options is None or not stream:
        return False, False  # without a stream they are the engine's to refuse
    if not isinstance(options, dict):
        raise bad_request("stream_options must be an object.", "stream_options")
    prefix = "stream_options."
    return (
        _flag(options, "include_usage", prefix),
        _flag(options, "continuous_usage_stats", prefix),
    )


def _strip_nested(document: dict[str, Any]) -> None:
    extra = document.get("vllm_xargs")
    if isinstance(extra, dict):  # vLLM's other way in for the same fields
        for name in OWNED:
            extra.pop(name, None)
    messages = document.get("messages")
    for message in messages if isinstance(messages, list) else ():
        parts = message.get("content") if isinstance(message, dict) else None
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict):
                part.pop("uuid", None)  # names an item of the multimodal caches, for all tenants
