"""Processes that die: recovery by itself, and never open in between."""

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from typing import Any

import httpx
import psutil
from prompts import arguments, prompt, send
from running_stack import LEASE_S, START_S, Stack, eventually


def ask(stack: Stack) -> httpx.Response:
    """A short request through the gateway."""
    return stack.post("/v1/chat/completions", json=arguments("chat", "Say salt."))


def engine_health(stack: Stack) -> int | None:
    """The engine's own health, or None while nobody listens."""
    try:
        return stack.engine("GET", "/health", secret=False).status_code
    except httpx.HTTPError:
        return None


def test_kill_the_engine(stack: Stack) -> None:
    """503 with Retry-After while it is down; then policy and service come back by themselves.

    All the while the engine's port is probed without a ticket: it is closed, not ready or
    refusing, and never answers.
    """
    assert ask(stack).status_code == 200
    seen: Counter[int | None] = Counter()
    done = threading.Event()

    def probe() -> None:
        while not done.is_set():
            try:
                bare: Any = {"model": "demo", "prompt": "x", "max_tokens": 1}
                r = stack.engine("POST", "/v1/completions", secret=False, json=bare)
                seen[r.status_code] += 1
            except httpx.HTTPError:
                seen[None] += 1
            time.sleep(0.02)  # between probes

    prober = threading.Thread(target=probe)
    prober.start()
    try:
        os.kill(stack.pid("engine"), signal.SIGKILL)
        eventually(lambda: not stack.is_ready(), 30)
        answer = ask(stack)
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["type"] == "server_error"
        eventually(stack.is_ready, START_S)
    finally:
        done.set()
        prober.join()
    assert ask(stack).status_code == 200
    assert seen[None] > 0
    assert set(seen) <= {None, 403, 503}
    text = prompt()
    assert send(stack, "acme", "chat", text, stream=False) == 0
    assert send(stack, "acme", "chat", text, stream=False) >= 384
    assert send(stack, "globex", "chat", text, stream=False) == 0


def test_kill_the_engine_core_alone(stack: Stack) -> None:
    """When only vLLM's inner process dies the whole engine restarts and is given its policy.

    Whoever asks it something just then gets no answer any more, and is no reason to stay.
    """
    server = psutil.Process(stack.pid("engine"))
    (core,) = [p for p in server.children(recursive=True) if "EngineCore" in " ".join(p.cmdline())]
    asked: Counter[int | None] = Counter()

    def ask_usage() -> None:
        try:
            while server.is_running():
                with httpx.Client(timeout=START_S, trust_env=False) as client:
                    secret = {"authorization": f"Bearer {stack.secret}"}
                    url = stack.ready["engine_url"] + "/saltwall/v1/usage"
                    asked[client.get(url, headers=secret).status_code] += 1
        except httpx.HTTPError:
            asked[None] += 1

    askers = [threading.Thread(target=ask_usage) for _ in range(6)]
    for asker in askers:
        asker.start()
    eventually(lambda: asked[200] > len(askers), 60)
    core.kill()
    eventually(lambda: not stack.is_ready(), 60)
    for asker in askers:
        asker.join()
    assert asked[200] < asked.total()
    eventually(stack.is_ready, START_S)
    assert ask(stack).status_code == 200


def test_kill_the_gateway_while_nothing_restarts_it(stack: Stack) -> None:
    """The engine drops what ran, stays up, and takes no new work once its lease has ended.

    The supervisor is stopped meanwhile, as if it were stuck; when it goes on, so does service.
    """
    running = threading.Thread(
        target=_ignore_errors,
        args=(stack, arguments("chat", "Count.", max_tokens=3000, min_tokens=3000, stream=True)),
    )
    running.start()
    eventually(lambda: stack.busy() == 1, 30)
    os.kill(stack.process.pid, signal.SIGSTOP)
    try:
        os.kill(stack.pid("gateway"), signal.SIGKILL)
        running.join(timeout=60)
        eventually(lambda: stack.busy() == 0, 30)
        eventually(lambda: engine_health(stack) == 503, 5 * LEASE_S)
        refused = stack.engine("POST", "/v1/completions", secret=False, json={})
        assert refused.status_code == 503
        assert refused.headers["x-saltwall-refusal"] == "lease_expired"
        assert stack.engine("GET", "/saltwall/v1/usage").status_code == 200
    finally:
        os.kill(stack.process.pid, signal.SIGCONT)
    eventually(stack.is_ready, 60)
    assert ask(stack).status_code == 200


def _ignore_errors(stack: Stack, body: dict[str, Any]) -> None:
    with contextlib.suppress(httpx.HTTPError):
        stack.post("/v1/chat/completions", json=body)
