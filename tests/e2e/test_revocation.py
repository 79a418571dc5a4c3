"""A revoked key and a suspended tenant stop within a second, running requests included."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import openai
from prompts import arguments
from running_stack import Stack, eventually

DEADLINE_S = 1.0
"""The contract; a busy test machine is given five times as long before the test fails."""


def new_tenant(stack: Stack, name: str) -> tuple[str, str]:
    """Makes a tenant; returns its key and the key's public id."""
    stack.saltwall("tenant", "create", name)
    key = json.loads(stack.saltwall("key", "create", name, "--json").stdout)["key"]
    return key, key.split("_")[2]


class Running:
    """A stream that generates for a minute or more if nobody ends it."""

    def __init__(self, stack: Stack, key: str) -> None:
        self.began = threading.Event()
        self.ended_at = 0.0
        self.tokens = 0
        self._thread = threading.Thread(target=self._read, args=(stack, key))
        self._thread.start()
        assert self.began.wait(120)

    def _read(self, stack: Stack, key: str) -> None:
        lasting = {"min_tokens": 3500}
        long = arguments("chat", "Count.", max_tokens=3500, extra_body=lasting, stream=True)
        try:
            for _ in stack.client(key=key).chat.completions.create(**long):
                self.tokens += 1
                self.began.set()
        except (openai.APIError, httpx.HTTPError):
            pass
        self.ended_at = time.monotonic()

    def wait(self) -> float:
        """Waits for the end; returns when it was."""
        self._thread.join(timeout=120)
        assert self.ended_at
        return self.ended_at


def seconds_until_stopped(
    stack: Stack, key: str, stop: Callable[[], Any], record: Callable[[str, object], None]
) -> None:
    """Stops a tenant's key by `stop`, under a running stream, and reports how fast it took effect.

    Counts from the moment the command has returned: what it did is committed then.
    """
    running = Running(stack, key)
    stop()
    committed = time.monotonic()
    refused = eventually(lambda: _status(stack, key) in (401, 403), 5 * DEADLINE_S)
    ended = running.wait() - committed
    idle = eventually(lambda: stack.busy() == 0, 5 * DEADLINE_S)
    record("refused_after_s", round(refused, 3))
    record("running_ended_after_s", round(ended, 3))
    record("engine_idle_after_s", round(idle, 3))
    assert ended < 5 * DEADLINE_S
    assert running.tokens < 3400


def _status(stack: Stack, key: str) -> int:
    response = httpx.get(
        f"{stack.base_url}/models", headers={"authorization": f"Bearer {key}"}, trust_env=False
    )
    return response.status_code


def test_a_revoked_key_stops(stack: Stack, record_property: Callable[[str, object], None]) -> None:
    """New requests get 401, the running one ends, the engine is idle; another key goes on."""
    key, public_id = new_tenant(stack, "revoked")
    other = json.loads(stack.saltwall("key", "create", "revoked", "--json").stdout)["key"]
    revoke = lambda: stack.saltwall("key", "revoke", public_id)  # noqa: E731
    seconds_until_stopped(stack, key, revoke, record_property)
    assert _status(stack, key) == 401
    assert _status(stack, other) == 200


def test_a_suspended_tenant_stops(
    stack: Stack, record_property: Callable[[str, object], None]
) -> None:
    """New requests get 403, the running one ends; after resuming the same key works again."""
    key, _ = new_tenant(stack, "suspended")
    suspend = lambda: stack.saltwall("tenant", "suspend", "suspended")  # noqa: E731
    seconds_until_stopped(stack, key, suspend, record_property)
    assert _status(stack, key) == 403
    stack.saltwall("tenant", "resume", "suspended")
    eventually(lambda: _status(stack, key) == 200, 5 * DEADLINE_S)


def test_every_bad_key_gets_the_same_answer(stack: Stack) -> None:
    """Unknown, malformed and revoked keys cannot be told apart by a single byte."""
    key, public_id = new_tenant(stack, "onekey")
    stack.saltwall("key", "revoke", public_id)
    eventually(lambda: _status(stack, key) == 401, 5 * DEADLINE_S)
    good = stack.keys["acme"]
    wrong = good[:-8] + ("A" if good[-8] != "A" else "B") + good[-7:]
    answers = {
        (r.status_code, r.content)
        for r in (stack.post("/v1/completions", key=k, json={}) for k in (key, wrong, "sw_live_x"))
    }
    assert len(answers) == 1
    assert answers.pop()[0] == 401
