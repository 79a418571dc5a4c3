"""Rotating a salt makes what was cached under the old one unreachable, and interrupts nothing."""

import json
from concurrent.futures import ThreadPoolExecutor

from prompts import arguments, prompt, send
from running_stack import Stack, eventually


def held_blocks(stack: Stack, tenant: str) -> int:
    """How many blocks the engine holds for a tenant."""
    shown = json.loads(stack.saltwall("tenant", "show", tenant, "--json").stdout)
    row = stack.usage()["tenants"].get(shown["id"].replace("-", ""), {})
    return int(row.get("held", 0))


def test_rotation_hides_the_old_prefix_and_spares_everything_else(stack: Stack) -> None:
    """acme's prefix: 0 cached tokens. globex's: hits. A request in flight: finishes.

    With a grace of zero the old generation is revoked at once, and its blocks are unhashed too.
    """
    text = prompt()
    for tenant in ("acme", "globex"):
        assert send(stack, tenant, "chat", text, stream=False) == 0
        assert send(stack, tenant, "chat", text, stream=False) >= 384
    with ThreadPoolExecutor() as pool:
        long = arguments("chat", "Tell a story.", max_tokens=150, extra_body={"min_tokens": 150})
        chat = stack.client().chat.completions
        running = pool.submit(lambda: list(chat.create(**long, stream=True)))
        eventually(lambda: stack.busy() == 1, 60)
        stack.saltwall("salt", "rotate", "acme")
        finish = [c.finish_reason for chunk in running.result() for c in chunk.choices]
        assert finish[-1] == "length"
    assert send(stack, "acme", "chat", text, stream=False) == 0
    assert send(stack, "acme", "chat", text, stream=False) >= 384
    assert send(stack, "globex", "chat", text, stream=False) >= 384
    generations = json.loads(stack.saltwall("salt", "list", "acme", "--json").stdout)
    assert {g["generation"]: g["status"] for g in generations}[1] == "retiring"


def test_a_rotation_without_grace_unhashes_the_old_blocks(stack: Stack) -> None:
    """Old-generation blocks are not only unreachable by their hash: the engine has none left."""
    stack.saltwall("tenant", "create", "rotor")
    key = json.loads(stack.saltwall("key", "create", "rotor", "--json").stdout)["key"]
    request = arguments("chat", prompt())
    client = stack.client(key=key)
    client.chat.completions.create(**request)
    before = held_blocks(stack, "rotor")
    assert before >= 12
    stack.saltwall("salt", "rotate", "rotor", "--grace", "0")
    eventually(lambda: held_blocks(stack, "rotor") == 0, 30)
    usage = client.chat.completions.create(**request).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 0
    assert held_blocks(stack, "rotor") == before
