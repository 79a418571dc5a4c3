"""vLLM hands the gateway's extra argument on to every sequence of a request."""

from typing import Any

import pytest

from saltwall_engine.pool import NO_STORE


@pytest.fixture
def protocols(hooks: None) -> dict[str, Any]:
    """vLLM's own request models of the two routes."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    arguments = {"model": "demo", "n": 3, "vllm_xargs": {NO_STORE: 1, "mine": 2}}
    messages = [{"role": "user", "content": "Hi"}]
    return {
        "chat": ChatCompletionRequest(messages=messages, **arguments),
        "completion": CompletionRequest(prompt="Hi", **arguments),
    }


@pytest.mark.parametrize("route", ["chat", "completion"])
def test_the_argument_arrives_with_every_choice(protocols: dict[str, Any], route: str) -> None:
    """In the sampling parameters of the request, and of each of the three that n makes of it."""
    from vllm.v1.engine import EngineCoreRequest
    from vllm.v1.engine.parallel_sampling import ParentRequest

    params = protocols[route].to_sampling_params(16, {})
    assert params.extra_args == {NO_STORE: 1, "mine": 2}
    parent = ParentRequest(
        EngineCoreRequest(
            request_id="r",
            prompt_token_ids=[1],
            mm_features=None,
            sampling_params=params,
            pooling_params=None,
            arrival_time=0.0,
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
            external_req_id="r",
        )
    )
    children = [parent.get_child_info(i)[1] for i in range(3)]
    assert all(child.extra_args[NO_STORE] == 1 for child in children)


def test_gateway_and_engine_mean_the_same_argument() -> None:
    """The two rooms do not import each other; the name is written twice."""
    from saltwall_platform.no_store import ARGUMENT

    assert ARGUMENT == NO_STORE
