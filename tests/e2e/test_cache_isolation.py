"""A prompt that one tenant has sent is cached for that tenant and for nobody else."""

from typing import Any

import pytest
from prompts import arguments, prompt, send, send_async
from running_stack import Stack


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("route", ["chat", "completions"])
def test_only_the_tenants_own_repeat_is_cached(stack: Stack, route: str, stream: bool) -> None:
    """acme: nothing, then hits. globex with acme's prompt: nothing, then its own hits."""
    text = prompt()
    assert send(stack, "acme", route, text, stream=stream) == 0
    assert send(stack, "acme", route, text, stream=stream) >= 384
    assert send(stack, "globex", route, text, stream=stream) == 0
    assert send(stack, "globex", route, text, stream=stream) >= 384


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("route", ["chat", "completions"])
async def test_the_same_through_the_asynchronous_client(
    stack: Stack, route: str, stream: bool
) -> None:
    """The other official client sees the same."""
    text = prompt()
    seen = [
        await send_async(stack, tenant, route, text, stream=stream)
        for tenant in ("acme", "acme", "globex", "globex")
    ]
    assert seen[0] == seen[2] == 0
    assert min(seen[1], seen[3]) >= 384


def test_a_hit_crosses_routes_and_modes_within_a_tenant_only(stack: Stack) -> None:
    """What acme streamed is a hit when acme asks for it whole; for globex in no mode at all."""
    text = prompt()
    assert send(stack, "acme", "chat", text, stream=True) == 0
    assert send(stack, "acme", "chat", text, stream=False) >= 384
    for stream in (True, False):
        other = prompt()
        send(stack, "acme", "chat", other, stream=stream)
        assert send(stack, "globex", "chat", other, stream=not stream) == 0


def test_a_clients_own_cache_salt_partitions_inside_its_tenant(stack: Stack) -> None:
    """Each scope has its own cache; the same scope of another tenant has another."""
    text = prompt()
    mine: dict[str, Any] = {"extra_body": {"cache_salt": "team-a"}}
    assert send(stack, "acme", "chat", text, stream=False, **mine) == 0
    assert send(stack, "acme", "chat", text, stream=False, **mine) >= 384
    assert send(stack, "acme", "chat", text, stream=False) == 0
    assert send(stack, "globex", "chat", text, stream=False, **mine) == 0
    other: dict[str, Any] = {"extra_body": {"cache_salt": "team-b"}}
    assert send(stack, "acme", "chat", text, stream=False, **other) == 0


def test_several_sequences_of_one_request_share_its_prompt(stack: Stack) -> None:
    """n=3 is three sequences of one ticket; the repeat hits, the other tenant does not."""
    text = prompt()
    sampled = {"n": 3, "temperature": 0.7}
    first = stack.client().chat.completions.create(**(arguments("chat", text) | sampled))
    assert len(first.choices) == 3
    assert send(stack, "acme", "chat", text, stream=False) >= 384
    assert send(stack, "globex", "chat", text, stream=False) == 0


def test_the_answer_makes_sense(stack: Stack) -> None:
    """The demo model is a real one: it knows the capital of France."""
    answer = stack.client().completions.create(
        model="demo", max_tokens=8, temperature=0, prompt="The capital of France is"
    )
    assert "Paris" in answer.choices[0].text


def test_both_tenants_see_the_model(stack: Stack) -> None:
    """The list of models is the same for both."""
    for tenant in ("acme", "globex"):
        assert [model.id for model in stack.client(tenant).models.list()] == ["demo"]
