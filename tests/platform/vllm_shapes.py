"""Answers in the shape of vLLM 0.32's, byte for byte (see test_usage_filter for the proof)."""

import json
from typing import Any

FINGERPRINT = "vllm-0.32.0-abcdef01"
PROMPT_TOKENS, CACHED_TOKENS = 7, 4


def dump(document: Any) -> str:
    """As pydantic writes JSON."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def event(document: Any) -> bytes:
    """One server-sent event."""
    return f"data: {dump(document)}\n\n".encode()


def chat_events(body: dict[str, Any], words: list[str], *, natural: bool = False) -> list[bytes]:
    """A chat stream, one token a word.

    Args:
        body: the request; its `stream_options` decide about usage.
        natural: as if there were no `stream_options`.
    """
    options = {} if natural else body.get("stream_options") or {}
    usage = bool(options.get("include_usage"))
    running = usage and bool(options.get("continuous_usage_stats"))
    head = {"id": f"chatcmpl-{body.get('request_id')}", "object": "chat.completion.chunk"}
    head |= {"created": 1_700_000_000, "model": body["model"]}

    def chunk(delta: dict[str, Any], tokens: int, finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        if "role" not in delta:
            choice |= {"stop_reason": None} if finish else {}
            choice |= {"token_ids": None}
        document = {**head, "choices": [choice]}
        if running:
            document["usage"] = {
                "prompt_tokens": PROMPT_TOKENS,
                "total_tokens": PROMPT_TOKENS + tokens,
                "completion_tokens": tokens,
                "completion_tokens_details": None,
            }
        if finish and not usage:
            document["system_fingerprint"] = FINGERPRINT
        return event(document | more)

    opening = {"role": "assistant", "content": ""}
    events = [chunk(opening, 0, prompt_token_ids=None, prompt_text=None)]
    for count, word in enumerate(words, 1):
        events.append(chunk({"content": word}, count, "stop" if count == len(words) else None))
    if usage:
        final = {"usage": usage_of(len(words)), "system_fingerprint": FINGERPRINT}
        events.append(event({**head, "choices": [], **final}))
    return [*events, b"data: [DONE]\n\n"]


def usage_of(tokens: int) -> dict[str, Any]:
    """The final usage."""
    return {
        "prompt_tokens": PROMPT_TOKENS,
        "total_tokens": PROMPT_TOKENS + tokens,
        "completion_tokens": tokens,
        "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS},
    }


def whole(body: dict[str, Any], tokens: int = 3) -> dict[str, Any]:
    """A completion that is not streamed."""
    return {
        "id": f"cmpl-{body.get('request_id')}",
        "object": "text_completion",
        "created": 1_700_000_000,
        "model": body["model"],
        "choices": [{"index": 0, "text": "Grüße", "finish_reason": "length"}],
        "system_fingerprint": FINGERPRINT,
        "usage": usage_of(tokens),
    }
