"""The whole product as its users run it: `saltwall up`, and clients that talk to it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai

SALTWALL = (sys.executable, "-m", "saltwall_platform.cli")
LEASE_S = 12
"""The engine's lease in these tests: short enough to wait for its end (seconds)."""
START_S = 600
"""How long a cold start may take on a busy machine before the tests give up (seconds)."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def eventually(holds: Callable[[], Any], within_s: float) -> float:
    """Polls until `holds()` is true; returns how long it took (seconds).

    Raises:
        AssertionError: it does not hold within the given time.
    """
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > within_s:
            raise AssertionError(f"still not so after {within_s} s: {holds}")
        time.sleep(0.02)  # between polls of a running system
    return time.monotonic() - began


@dataclass
class Stack:
    """A running `saltwall up`."""

    home: Path
    environ: dict[str, str] = field(repr=False)
    process: subprocess.Popen[str]
    ready: dict[str, Any] = field(repr=False)
    secret: str = field(repr=False)
    errors: list[bytes] = field(default_factory=list, repr=False)
    _http: httpx.Client = field(
        default_factory=lambda: httpx.Client(timeout=180, trust_env=False), repr=False
    )

    @property
    def base_url(self) -> str:
        """What OpenAI clients are given."""
        return str(self.ready["base_url"])

    @property
    def keys(self) -> dict[str, str]:
        """The demo tenants' API keys."""
        return dict(self.ready["keys"])

    def close(self) -> None:
        """Closes this side's connections."""
        self._http.close()

    def client(self, tenant: str = "acme", key: str | None = None) -> openai.OpenAI:
        """The official client; it never retries by itself."""
        return openai.OpenAI(
            api_key=key or self.keys[tenant], base_url=self.base_url, max_retries=0, timeout=180
        )

    def async_client(self, tenant: str = "acme") -> openai.AsyncOpenAI:
        """The official asynchronous client."""
        return openai.AsyncOpenAI(
            api_key=self.keys[tenant], base_url=self.base_url, max_retries=0, timeout=180
        )

    def post(self, path: str, tenant: str = "acme", key: str | None = None, **kwargs: Any) -> Any:
        """A raw request to the gateway; the search for secrets reads the bodies of errors."""
        given = kwargs.pop("headers", {})
        headers = {"authorization": f"Bearer {key or self.keys[tenant]}"} | given
        url = self.base_url.removesuffix("/v1") + path
        response = self._http.post(url, headers=headers, **kwargs)
        if response.status_code >= 400:
            self.errors.append(response.content)
        return response

    def engine(
        self, method: str, path: str, *, secret: bool = True, **kwargs: Any
    ) -> httpx.Response:
        """A request straight to the engine's port, with the control secret unless told not to."""
        headers = dict(kwargs.pop("headers", {}))
        if secret:
            headers["authorization"] = f"Bearer {self.secret}"
        url = self.ready["engine_url"] + path
        response = self._http.request(method, url, headers=headers, **kwargs)
        if response.status_code >= 400:
            self.errors.append(response.content)
        return response

    def usage(self) -> dict[str, Any]:
        """What the engine counts."""
        counts: dict[str, Any] = self.engine("GET", "/saltwall/v1/usage").json()
        return counts

    def busy(self) -> int:
        """Requests that the engine runs or queues."""
        return sum(self.usage()["requests"].values())

    def admin(self, path: str) -> httpx.Response:
        """A request to the operators' listener."""
        return self._http.get(self.ready["admin_url"] + path)

    def is_ready(self) -> bool:
        """Whether the gateway says that it can serve."""
        try:
            return self.admin("/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def saltwall(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs the command line on this stack's data."""
        return subprocess.run(
            [*SALTWALL, *arguments],
            env=self.environ,
            cwd=self.home,
            capture_output=True,
            text=True,
            check=check,
        )

    def pid(self, service: str) -> int:
        """The process of vLLM's API server, or of the gateway."""
        return int((self.home / "run" / f"{service}.pid").read_text())


@contextmanager
def running_stack(home: Path, *flags: str, **environment: str) -> Iterator[Stack]:
    """Runs `saltwall up` on free ports until the end of the block.

    Args:
        flags: further ones for vLLM.
    """
    port, admin_port, engine_port = free_ports(3)
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("SALTWALL_", "VLLM_"))}
    environ |= {"SALTWALL_HOME": str(home)} | environment
    argv = [*SALTWALL, "up", "--json", "--port", str(port), "--admin-port", str(admin_port)]
    argv += ["--engine-port", str(engine_port), "--max-model-len", "4096", "--", *flags]
    home.mkdir(parents=True, exist_ok=True)
    log = (home / "up.log").open("w")
    process = subprocess.Popen(
        argv, env=environ, cwd=home, stdout=subprocess.PIPE, stderr=log, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"saltwall up ended:\n{(home / 'up.log').read_text()[-4000:]}")
        ready = json.loads(line)
        keys = json.loads((home / "keys" / f"engine-{ready['model']}.json").read_text())
        stack = Stack(home, environ, process, ready, keys["control"])
        yield stack
        stack.close()
    finally:
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=60)
        finally:
            process.kill()
            process.stdout.close()
            log.close()
