"""Prompts on whichever route there is."""

import pytest
from prefix_server import PrefixServer

from saltwall_security.client import Client
from saltwall_security.prober import Prober, Refused
from saltwall_security.target import Target, Tenant


def client(url: str) -> Client:
    tenants = [Tenant("a", "key-a"), Tenant("b", "key-b")]
    return Client(Target(url, tenants, "demo"), tenants[0])


async def test_a_server_without_completions_is_asked_by_chat_from_then_on() -> None:
    """The missing route is tried once."""
    probe = Prober()
    async with PrefixServer(chat_only=True).running() as server:
        spy = client(server.url)
        assert (await probe(spy, "one two")).prompt_tokens == 2
        assert (await probe(spy, "one two three")).prompt_tokens == 3
        await spy.close()
    assert server.requests == 2


async def test_a_refusal_says_what_the_server_said() -> None:
    """With the status."""
    async with PrefixServer(refuses_after=0).running() as server:
        spy = client(server.url)
        with pytest.raises(Refused, match="429: too many requests"):
            await Prober()(spy, "one two")
        await spy.close()


async def test_of_a_long_refusal_no_word_is_cut() -> None:
    """The part of a key would not be known for one."""
    said = f"{'too many ' * 21}key-of-a-0123456789 and more"
    async with PrefixServer(refuses_after=0, refusal=said).running() as server:
        spy = client(server.url)
        with pytest.raises(Refused, match=r"too many$"):
            await Prober()(spy, "one two")
        await spy.close()


async def test_a_server_that_does_not_answer_refuses() -> None:
    """Whatever the reason."""
    spy = client("http://127.0.0.1:9/v1")
    with pytest.raises(Refused, match="did not answer: ConnectError"):
        await Prober()(spy, "one two")
    await spy.close()
