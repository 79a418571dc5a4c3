"""A request that can never fit is refused at the call, with 400 and the numbers."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import httpx
import pytest
from bare_core import ACME, BLOCK, GLOBEX

from saltwall_tenants.wire import (
    Amount,
    Authorisation,
    EngineKeys,
    Lease,
    Policy,
    Quota,
    Quotas,
    Ticket,
    make_ticket,
)

CEILING = 10
LONGEST = 512
NAMES = {tenant: frozenset({1}) for tenant in (ACME, GLOBEX)}


class Taken(Exception):
    """Ends a request that got as far as vLLM's own queue."""


class Rig:
    """vLLM's AsyncLLM, upgraded, over a core without a model in which acme may hold ten blocks."""

    def __init__(self, state: Any, keys: EngineKeys) -> None:
        from vllm.v1.engine.async_llm import AsyncLLM

        from saltwall_engine.fitting_llm import upgrade

        self.state, self.keys = state, keys
        self.llm: Any = upgrade(AsyncLLM.__new__(AsyncLLM), state)
        self.llm.log_requests = False
        self.llm.add_request = self.take
        self.taken: list[Any] = []

    async def take(self, request_id: str, prompt: Any, params: Any, *_: Any, **__: Any) -> Any:
        """Where stock's `generate` and `encode` hand over what they were called with."""
        self.taken.append(params)
        raise Taken

    def prompt(self, tokens: int, tenant: UUID = ACME, age: int = 0) -> Any:
        """A rendered prompt, as vLLM's server makes one."""
        content = Ticket(tenant, 1, b"s" * 32, int(time.time()) - age)
        ticket = make_ticket(1, self.keys.tickets[1], self.keys.name, content)
        return {"type": "token", "prompt_token_ids": [7] * tokens, "cache_salt": ticket}

    async def generate(self, prompt: Any, **fields: Any) -> int:
        """Serves a request; returns the `max_tokens` that vLLM queued it with."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.engine.exceptions import EngineGenerateError

        params = SamplingParams(**fields)
        asked = params.max_tokens
        answers = self.llm.generate(prompt, params, "r")
        with pytest.raises(EngineGenerateError):
            await anext(answers)
        assert params.max_tokens == asked, "the caller's own parameters are its own"
        return int(self.taken[-1].max_tokens)


@pytest.fixture
async def rig(make_core: Callable[..., Any], engine_keys: EngineKeys) -> Rig:
    """Quotas in force: acme has a ceiling of ten blocks, globex none."""
    from saltwall_engine.api_state import ApiState

    state = ApiState(engine_keys, make_core())
    await state.attest()
    quotas = Quotas(1, {ACME: Quota(ceiling=Amount.parse(f"{CEILING} blocks"))})
    await state.apply(Policy("demo", Lease(60), Authorisation(1, NAMES), quotas))
    return Rig(state, engine_keys)


async def test_an_explicit_answer_that_fits_is_left_alone(rig: Rig) -> None:
    """To the last token of the ceiling, and with the very parameters that were given."""
    assert await rig.generate(rig.prompt(100), max_tokens=61) == 61


@pytest.mark.parametrize("max_tokens", [None, LONGEST - 100, LONGEST, 10_000])
async def test_an_omitted_answer_is_clamped(rig: Rig, max_tokens: int | None) -> None:
    """What vLLM's server fills in, all that the context leaves, counts as omitted."""
    assert await rig.generate(rig.prompt(100), max_tokens=max_tokens) == 61


@pytest.mark.parametrize(
    ("prompt", "fields", "numbers"),
    [
        (100, {"max_tokens": 62}, "100 prompt tokens and 62 to generate need 11"),
        (100, {"max_tokens": 62}, "lower max_tokens to 61 or less"),
        (100, {"max_tokens": LONGEST - 101}, "need 32 KV cache blocks, and you may use 10"),
        (161, {"max_tokens": None}, "161 prompt tokens need 11"),
        (161, {"max_tokens": LONGEST}, "which hold 160 tokens: shorten the prompt"),
        (100, {"max_tokens": None, "min_tokens": 62}, "and 62 to generate need 11"),
        (100, {"max_tokens": None, "min_tokens": 62}, "lower min_tokens to 61 or less"),
    ],
)
def test_what_can_never_fit_is_refused_at_the_call(
    rig: Rig, prompt: int, fields: dict[str, Any], numbers: str
) -> None:
    """Before the first token is awaited, so that a stream has not begun; nothing is queued."""
    from vllm.exceptions import VLLMValidationError
    from vllm.sampling_params import SamplingParams

    with pytest.raises(VLLMValidationError, match=numbers):
        rig.llm.generate(rig.prompt(prompt), SamplingParams(**fields), "r")
    assert rig.taken == []


async def test_without_a_ceiling_the_pool_is_the_limit(rig: Rig) -> None:
    """63 blocks of 16 tokens are more than the longest request, so nothing is clamped."""
    assert await rig.generate(rig.prompt(100, GLOBEX), max_tokens=LONGEST - 100) == LONGEST - 100


async def test_beams_and_tool_loops_keep_their_ticket(rig: Rig) -> None:
    """Their later rounds come with a ticket that the gate would not take any more."""
    assert await rig.generate(rig.prompt(100, age=3000), max_tokens=None) == 61


async def test_what_is_no_ticket_is_left_to_the_engine_core(rig: Rig) -> None:
    """It refuses it with the reason; here nothing is known of its tenant."""
    prompt = rig.prompt(300) | {"cache_salt": "x"}
    assert await rig.generate(prompt, max_tokens=100) == 100


def test_embeddings_are_held_to_the_ceiling_too(rig: Rig) -> None:
    """A prompt that is only encoded takes blocks like any other."""
    from vllm.exceptions import VLLMValidationError
    from vllm.pooling_params import PoolingParams

    rig.llm.encode(rig.prompt(160), PoolingParams(), "r")
    with pytest.raises(VLLMValidationError, match="161 prompt tokens need 11"):
        rig.llm.encode(rig.prompt(161), PoolingParams(), "r")


async def test_refusals_are_counted(rig: Rig) -> None:
    """An operator sees that a ceiling is too low for what is asked."""
    from vllm.exceptions import VLLMValidationError
    from vllm.sampling_params import SamplingParams

    assert "does_not_fit" not in (await rig.state.usage())["refusals"]
    for _ in range(2):
        with pytest.raises(VLLMValidationError):
            rig.llm.generate(rig.prompt(200), SamplingParams(), "r")
    assert (await rig.state.usage())["refusals"]["does_not_fit"] == 2


def completions(rig: Rig, prompt: int, **fields: Any) -> Any:
    """A call of vLLM's own handler of /v1/completions, with neither tokenizer nor model."""
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest
    from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion

    async def render(_request: Any) -> list[Any]:
        return [rig.prompt(prompt)]

    server = bare(OpenAIServingCompletion, rig)
    server.render_completion_request = render
    return server._create_completion(CompletionRequest(prompt="Hi", **fields), None)


def chat(rig: Rig, prompt: int, **fields: Any) -> Any:
    """The same of /v1/chat/completions."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat

    async def render(_request: Any) -> tuple[list[Any], list[Any]]:
        return [], [rig.prompt(prompt)]

    server = bare(OpenAIServingChat, rig)
    server.render_chat_request = render
    server.parser_cls, server.response_role = None, "assistant"
    server._effective_chat_template_kwargs = lambda request: {}
    request = ChatCompletionRequest(messages=[{"role": "user", "content": "Hi"}], **fields)
    return server._create_chat_completion(request, None)


def bare(kind: type[Any], rig: Rig) -> Any:
    """One of vLLM's handlers over the upgraded client."""
    server = kind.__new__(kind)
    server.engine_client = rig.llm
    server.model_config = SimpleNamespace(max_model_len=LONGEST, is_encoder_decoder=False)
    server.models = SimpleNamespace(model_name=lambda lora: "demo", lora_requests={})
    server._maybe_get_adapters = lambda request, **_: None
    server.renderer = SimpleNamespace(tokenizer=object())
    server.default_sampling_params, server.override_max_tokens = {}, None
    server.request_logger = None
    return server


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", [completions, chat])
async def test_a_stream_is_refused_before_it_begins(
    rig: Rig, route: Callable[..., Any], stream: bool
) -> None:
    """vLLM's handlers raise while the status line can still be 400, streamed or not."""
    from vllm.exceptions import VLLMValidationError

    with pytest.raises(VLLMValidationError, match="180 prompt tokens and 20 to generate"):
        await route(rig, 180, max_tokens=20, stream=stream)
    assert rig.taken == []


async def test_what_vllms_server_fills_in_counts_as_omitted(rig: Rig) -> None:
    """A chat without max_tokens is clamped, not refused."""
    from vllm.v1.engine.exceptions import EngineGenerateError

    with pytest.raises(EngineGenerateError):
        await chat(rig, 100)
    assert rig.taken[-1].max_tokens == 61


async def test_vllms_server_answers_400_with_the_numbers(rig: Rig) -> None:
    """Through vLLM's own error handlers: an OpenAI error object, and the client's fault."""
    from fastapi import FastAPI
    from vllm.entrypoints.serve.exception_handling.register import init_exception_handler
    from vllm.sampling_params import SamplingParams

    app = FastAPI()
    init_exception_handler(app)
    app.state.args = SimpleNamespace(log_error_stack=False)

    @app.post("/v1/completions")
    async def serve() -> None:
        rig.llm.generate(rig.prompt(180), SamplingParams(max_tokens=20), "r")

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        response = await client.post("/v1/completions")
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["message"] == (
        "180 prompt tokens and 20 to generate need 13 KV cache blocks, and you may use 10,"
        f" which hold {CEILING * BLOCK} tokens: shorten the prompt."
    )
    assert (error["type"], error["code"]) == ("BadRequestError", 400)
