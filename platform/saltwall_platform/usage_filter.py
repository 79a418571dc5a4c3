"""Reads the usage out of a stream, and gives the client the stream it would have had without.

The gateway asks the engine for usage in every chunk, so that it knows what was used when a request
is cut. What vLLM (vllm/entrypoints/openai/chat_completion/serving.py and .../completion/serving.py)
does differently then is undone here, byte for byte:

- every chunk has a `usage` after its `choices`: removed, unless the client asked for it;
- one more chunk, without choices, comes last: removed, unless the client asked for it;
- `system_fingerprint` is in that chunk and not in those with a finish reason: put back there, in
  the very place where `usage` was. Until an engine's first such chunk has told what it is, chunks
  with a finish reason are held back; the telling one follows at once.
"""

import json
from dataclasses import dataclass
from typing import Any

from saltwall_platform.call import Call
from saltwall_platform.redaction import redact_bytes
from saltwall_platform.replicas import Replica
from saltwall_platform.sse import data_span
from saltwall_platform.usage import Meter, Usage, read_usage

MAX_HELD_BYTES = 2**20
_USAGE = ',"usage":'
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class _Event:
    """An event, where its data is, and what that says; no document for what we do not touch."""

    raw: bytes
    begin: int = 0
    end: int = 0
    document: dict[str, Any] | None = None


class UsageFilter:
    """One stream's filter: whole events in, what the client gets out.

    `done` is whether the stream has ended as it should; `failed`, whether the engine reported an
    error in it.
    """

    def __init__(self, call: Call, replica: Replica, meter: Meter) -> None:
        self._call = call
        self._replica = replica
        self._meter = meter
        self._held: list[_Event] = []
        self.done = False
        self.failed = False

    def feed(self, raw: bytes) -> bytes:
        """What to send now that this event has come; perhaps nothing."""
        event = _parse(raw)
        self.done = self.done or raw[event.begin : event.end] == b"[DONE]"
        document = event.document
        if document is None:
            return self.release() + raw if self.done else self._pass_on(event)
        if "error" in document:
            self.failed = True
            return self.release() + redact_bytes(raw)
        usage, choices = read_usage(document.get("usage")), document.get("choices")
        if usage is not None and not choices:
            self._meter.final = usage
            self._replica.fingerprint = str(document.get("system_fingerprint") or "")
            return self.release() + (raw if self._call.wants_usage else b"")
        self._note(document, usage, choices if isinstance(choices, list) else [])
        return self._pass_on(event)

    def release(self) -> bytes:
        """What was held back, however little is known by now; for the end of a stream."""
        held, self._held = self._held, []
        return b"".join(self._render(event) for event in held)

    def _pass_on(self, event: _Event) -> bytes:
        must_wait = self._lacks_fingerprint(event) and self._replica.fingerprint is None
        if not self._held and not must_wait:
            return self._render(event)
        self._held.append(event)
        too_much = sum(len(held.raw) for held in self._held) > MAX_HELD_BYTES
        return self.release() if too_much else b""

    def _lacks_fingerprint(self, event: _Event) -> bool:
        return not self._call.wants_usage and _finishes(event.document)

    def _note(self, document: dict[str, Any], usage: Usage | None, choices: list[Any]) -> None:
        if usage is None:
            self._meter.chunk(choices)
            return
        self._meter.running(choices, usage)
        if document["usage"].get("completion_tokens_details") is not None:
            self._replica.recounts_reasoning = True

    def _render(self, event: _Event) -> bytes:
        if event.document is None or self._call.wants_running_usage:
            return event.raw
        fields = {}
        if self._lacks_fingerprint(event) and self._replica.fingerprint:
            fields = {"system_fingerprint": self._replica.fingerprint}
        if not fields and "usage" not in event.document:
            return event.raw
        text = event.raw[event.begin : event.end].decode()
        restored = _replace_usage(text, event.document, fields).encode()
        return event.raw[: event.begin] + restored + event.raw[event.end :]


def _parse(raw: bytes) -> _Event:
    span = data_span(raw)
    if span is None:
        return _Event(raw)
    return _Event(raw, *span, _load(raw[slice(*span)]))


def _load(data: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _finishes(document: dict[str, Any] | None) -> bool:
    choices = document.get("choices") if document else None
    return isinstance(choices, list) and any(
        isinstance(choice, dict) and choice.get("finish_reason") is not None for choice in choices
    )


def _replace_usage(data: str, document: dict[str, Any], fields: dict[str, Any]) -> str:
    """Puts `fields` where `usage` is, or at the end; all else stays as it was written.

    The place is found in the text and proven by parsing the result, so that a look-alike inside of
    a string or a nested object is never taken for it.
    """
    wanted = {name: value for name, value in document.items() if name != "usage"} | fields
    written = "".join(f",{_dump(name)}:{_dump(value)}" for name, value in fields.items())
    if "usage" not in document:
        candidate = data[:-1] + written + "}"
        return candidate if data.endswith("}") else _dump(wanted)
    at = data.rfind(_USAGE)
    while at >= 0:
        try:
            _, end = _DECODER.raw_decode(data, at + len(_USAGE))
            candidate = data[:at] + written + data[end:]
            if json.loads(candidate) == wanted:
                return candidate
        except ValueError:
            pass
        at = data.rfind(_USAGE, 0, at)
    return _dump(wanted)


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
