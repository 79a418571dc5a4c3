"""The client's stream is what vLLM would have sent it, and the gateway knows what was used."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from vllm_shapes import CACHED_TOKENS, FINGERPRINT, PROMPT_TOKENS, chat_events, dump

from saltwall_platform.call import Call, read_call
from saltwall_platform.replicas import Replica
from saltwall_platform.settings import Engine
from saltwall_platform.usage import Meter, Usage
from saltwall_platform.usage_filter import MAX_HELD_BYTES, UsageFilter
from saltwall_tenants.wire import EngineKeys

WORDS = ["a", ',"usage":{}', '{"usage":{"prompt_tokens":1}}', "b"]
RECORDER = Path(__file__).with_name("record_vllm_streams.py")


def replica() -> Replica:
    return Replica(
        "demo", Engine(name="demo", url="http://127.0.0.1:1"), EngineKeys("", {}, {}, "")
    )


def call_of(options: Any = None, **fields: Any) -> Call:
    body = {"model": "demo", "messages": [], "stream": True, **fields}
    if options is not None:
        body["stream_options"] = options
    return read_call(json.dumps(body).encode(), max_sequences=64, max_constraint_bytes=16_384)


def upstream_body(call: Call, running: bool = True) -> dict[str, Any]:
    return json.loads(call.encode(request_id="r", ticket="t", running_usage=running))


def run(call: Call, events: list[bytes], engine: Replica | None = None) -> tuple[bytes, Meter]:
    meter = Meter(call.choices_per_prompt)
    stream = UsageFilter(call, engine or replica(), meter)
    return b"".join(map(stream.feed, events)) + stream.release(), meter


@pytest.fixture(scope="module")
def recorded() -> list[dict[str, Any]]:
    """What vLLM's own code sends, in every case."""
    done = subprocess.run([sys.executable, RECORDER], capture_output=True, text=True, check=False)
    cases = [line for line in done.stdout.splitlines() if line.startswith("CASES ")]
    assert cases, done.stderr[-2000:]
    return json.loads(cases[0].removeprefix("CASES "))


def test_clients_get_the_very_bytes_that_vllm_would_have_sent_them(recorded):
    assert len(recorded) == 40
    for case in recorded:
        call = call_of(case["options"], n=case["n"])
        got, _ = run(call, [event.encode() for event in case["asked"]])
        assert got.decode() == "".join(case["natural"]), (case["name"], case["options"])


def test_the_usage_of_vllms_streams_is_known_at_the_end_and_before_it(recorded):
    for case in recorded:
        call = call_of(case["options"], n=case["n"])
        events = [event.encode() for event in case["asked"]]
        _, meter = run(call, events)
        final = meter.total()
        _, cut = run(call, events[:-2])
        assert final.cached_tokens == 2
        assert cut.total() == Usage(final.prompt_tokens, 0, final.completion_tokens), case["name"]


def test_an_engine_is_asked_for_usage_whatever_the_client_asked():
    for options in (None, {}, {"include_usage": False}, {"continuous_usage_stats": True}):
        sent = upstream_body(call_of(options))["stream_options"]
        assert sent == {"include_usage": True, "continuous_usage_stats": True}


def test_other_stream_options_keep_their_values():
    sent = upstream_body(call_of({"include_obfuscation": False}))["stream_options"]
    assert sent["include_obfuscation"] is False


def test_a_request_without_a_stream_gets_no_stream_options():
    body = upstream_body(call_of(None, stream=False))
    assert "stream_options" not in body


def test_the_finish_waits_only_until_the_engines_fingerprint_is_known():
    call, engine = call_of(), replica()
    events = chat_events(upstream_body(call), WORDS)
    stream = UsageFilter(call, engine, Meter())
    assert stream.feed(events[len(WORDS)]) == b""  # the chunk with the finish reason
    assert FINGERPRINT.encode() in stream.feed(events[len(WORDS) + 1])
    again = UsageFilter(call, engine, Meter())
    assert FINGERPRINT.encode() in again.feed(events[len(WORDS)])


def test_what_is_held_back_is_bounded():
    call = call_of()
    finish = chat_events(upstream_body(call), WORDS)[len(WORDS)]
    stream = UsageFilter(call, replica(), Meter())
    sent = 0
    for _ in range(2 * MAX_HELD_BYTES // len(finish)):
        sent += len(stream.feed(finish))
    assert sent > 0


def test_a_stream_cut_before_its_usage_still_gives_the_client_its_last_chunk():
    call = call_of()
    events = chat_events(upstream_body(call), WORDS)
    got, meter = run(call, events[: len(WORDS) + 1])
    assert got.endswith(b"\n\n")
    assert b'"finish_reason":"stop"' in got
    assert meter.total() == Usage(PROMPT_TOKENS, 0, len(WORDS))


def test_comments_pass_and_keep_their_place():
    call = call_of()
    events = chat_events(upstream_body(call), WORDS)
    natural = chat_events(upstream_body(call), WORDS, natural=True)
    comment = b": keep-alive\n\n"
    for place in range(len(WORDS) + 2):
        got, _ = run(call, [*events[:place], comment, *events[place:]])
        assert got == b"".join([*natural[:place], comment, *natural[place:]])


def test_an_error_event_passes_and_is_noticed():
    stream = UsageFilter(call_of(), replica(), Meter())
    error = b'data: {"error": {"message": "boom", "code": 500}}\n\n'
    assert stream.feed(error) == error
    assert stream.failed


def test_a_ticket_in_an_error_event_is_struck_out():
    stream = UsageFilter(call_of(), replica(), Meter())
    ticket = "sw1." + "A" * 114
    out = stream.feed(f'data: {{"error": {{"message": "bad {ticket}"}}}}\n\n'.encode())
    assert ticket.encode() not in out
    assert b"bad [ticket]" in out


@pytest.mark.parametrize(
    "event",
    [b"data: nonsense\n\n", b"data: [1]\n\n", b"data\n\n", b"event: x\ndata: {}\n\n", b"\n\n"],
)
def test_what_is_no_chunk_passes_as_it_is(event):
    assert UsageFilter(call_of(), replica(), Meter()).feed(event) == event


def test_other_fields_and_line_ends_of_an_event_stay():
    chunk = {"id": "x", "choices": [{"index": 0, "text": "t"}], "usage": {"prompt_tokens": 1}}
    event = f"event: message\r\ndata:{dump(chunk)}\r\nid: 7\r\n\r\n".encode()
    got, _ = run(call_of(), [event])
    assert got == event.replace(b',"usage":{"prompt_tokens":1}', b"")


def test_only_the_outermost_usage_is_removed():
    nested = '"deep":{"a":1,"usage":{"prompt_tokens":5}}'
    event = f'data: {{"choices":[{{"index":0}}],"usage":{{"prompt_tokens":1}},{nested}}}\n\n'
    got, _ = run(call_of(), [event.encode()])
    assert got.decode() == f'data: {{"choices":[{{"index":0}}],{nested}}}\n\n'


def test_a_usage_written_in_another_way_is_removed_all_the_same():
    event = b'data: { "usage" : {"prompt_tokens": 1}, "choices" : [{"index": 0}] }\n\n'
    got, _ = run(call_of(), [event])
    assert json.loads(got.removeprefix(b"data: ")) == {"choices": [{"index": 0}]}


def test_an_engine_that_recounts_reasoning_for_each_chunk_is_spared_that():
    engine = replica()
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    usage["completion_tokens_details"] = {"reasoning_tokens": 1}
    chunk = {"choices": [{"index": 0, "delta": {}}], "usage": usage}
    run(call_of(), [f"data: {dump(chunk)}\n\n".encode()], engine)
    assert engine.recounts_reasoning
    sent = upstream_body(call_of(), running=False)["stream_options"]
    assert sent == {"include_usage": True, "continuous_usage_stats": False}


def test_without_running_counts_each_chunk_counts_as_one_token():
    call = call_of()
    events = chat_events(upstream_body(call, running=False), WORDS)
    got, meter = run(call, events[:4])
    assert got == b"".join(chat_events(upstream_body(call), WORDS, natural=True)[:4])
    assert meter.total() == Usage(0, 0, 3)


def test_the_ledger_gets_cached_tokens_from_the_final_usage():
    call = call_of()
    _, meter = run(call, chat_events(upstream_body(call), WORDS))
    assert meter.total() == Usage(PROMPT_TOKENS, CACHED_TOKENS, len(WORDS))
