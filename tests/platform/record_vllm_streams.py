"""Runs vLLM's own stream generators, without a model, and prints what they send as JSON.

Run as a program, in a process of its own: importing vLLM changes the process that does it.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from vllm.entrypoints.generate.base.protocol import RequestResponseMetadata
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
from vllm.outputs import CompletionOutput, RequestOutput

TEXTS = ['Grüß "Gott"', ',"usage":{"prompt_tokens":9}', "\n\ndata: [DONE]\n\n", " end"]
ASKED = {"include_usage": True, "continuous_usage_stats": True}
OPTIONS: list[dict[str, bool] | None] = [
    None,
    {"include_usage": False},
    {"continuous_usage_stats": True},
    {"include_usage": True},
    ASKED,
]


def outputs(prompts: int, n: int) -> list[tuple[int, RequestOutput]]:
    """What an engine would produce: choices end at different steps."""
    steps = []
    for step, text in enumerate(TEXTS):
        for prompt in range(prompts):
            choices = []
            for index in range(n):
                last = len(TEXTS) - 1 - index % 2
                if step <= last:
                    choices.append(
                        CompletionOutput(
                            index=index,
                            text=text,
                            token_ids=[step, step],
                            cumulative_logprob=None,
                            logprobs=None,
                            finish_reason="stop" if step == last else None,
                        )
                    )
            output = RequestOutput(
                request_id="r",
                prompt="p",
                prompt_token_ids=[1, 2, 3 + prompt],
                prompt_logprobs=None,
                outputs=choices,
                finished=step == len(TEXTS) - 1,
                num_cached_tokens=2,
            )
            steps.append((prompt, output))
    return steps


def serving(kind: type[Any], fingerprint: str | None) -> Any:
    """A serving object with no engine behind it."""
    server = kind.__new__(kind)
    server.parser_cls = None
    server.enable_force_include_usage = False
    server.system_fingerprint = fingerprint
    server._include_reasoning_tokens_details = False
    server.enable_log_outputs = False
    server.request_logger = None
    server.enable_prompt_tokens_details = True
    server.enable_per_request_metrics = False
    server.response_role = "assistant"
    return server


async def chat(
    options: dict[str, bool] | None, prompts: int, n: int, fingerprint: str | None
) -> list[str]:
    """A chat stream."""
    request = ChatCompletionRequest(
        model="demo",
        messages=[{"role": "user", "content": "x"}],
        stream=True,
        n=n,
        stream_options=options,
    )

    async def results() -> AsyncIterator[RequestOutput]:
        for _, output in outputs(prompts, n):
            yield output

    server = serving(OpenAIServingChat, fingerprint)
    stream = server.chat_completion_stream_generator(
        request,
        results(),
        "chatcmpl-1",
        "demo",
        [],
        None,
        RequestResponseMetadata(request_id="chatcmpl-1"),
    )
    return [event async for event in stream]


async def completion(
    options: dict[str, bool] | None, prompts: int, n: int, fingerprint: str | None
) -> list[str]:
    """A completion stream."""
    request = CompletionRequest(
        model="demo", prompt=["x"] * prompts, stream=True, n=n, stream_options=options
    )

    async def results() -> AsyncIterator[tuple[int, RequestOutput]]:
        for item in outputs(prompts, n):
            yield item

    server = serving(OpenAIServingCompletion, fingerprint)
    stream = server.completion_stream_generator(
        request,
        [],
        results(),
        "cmpl-1",
        1_700_000_000,
        "demo",
        prompts,
        None,
        RequestResponseMetadata(request_id="cmpl-1"),
    )
    return [event async for event in stream]


async def main() -> None:
    """Prints every case: what the client asked for, and the stream with and without our asking."""
    time.time = lambda: 1_700_000_000.0
    cases = []
    for name, kind, prompts, n in (
        ("chat", chat, 1, 1),
        ("chat n=3", chat, 1, 3),
        ("completion", completion, 1, 1),
        ("completion 2x2", completion, 2, 2),
    ):
        for fingerprint in ("vllm-0.32.0-abcdef01", None):
            asked = await kind(ASKED, prompts, n, fingerprint)
            for options in OPTIONS:
                natural = await kind(options, prompts, n, fingerprint)
                case = {"name": name, "options": options, "n": n, "fingerprint": fingerprint}
                cases.append({**case, "natural": natural, "asked": asked})
    print("CASES " + json.dumps(cases))


if __name__ == "__main__":
    asyncio.run(main())
