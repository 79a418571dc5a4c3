"""A second gateway of the same installation, between which and the engine the auditor listens."""

import asyncio
import json
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from saltwall_security.client import Client
from saltwall_security.errors import AuditError
from saltwall_security.operator import CommandLine
from saltwall_security.recording import Recorded, Recorder
from saltwall_security.target import Target, Tenant

START_S = 60.0
TRIES = 8
"""Requests, of which one goes to the engine that is listened to, where there are several."""
POLL_S = 0.05
BROKEN = 502
_TICKET_FIELD, SEAL_HEADER = "cache_salt", "x-saltwall-seal"


@dataclass(frozen=True)
class Spied:
    """The gateway that is listened to.

    Args:
        target: the same platform through it.
        engine_name: what the gateway calls the engine.
        keys_file: that engine's keys, if they are on this machine.
        tries: how often a request is sent until one goes to that engine.
    """

    target: Target
    engine_name: str
    keys_file: Path
    recorder: Recorder = field(repr=False)
    tries: int = 1

    async def capture(self, tenant: Tenant, prompt: str, **fields: Any) -> Recorded:
        """As `record`, but the engine never sees it: the request is still to be used."""
        self.recorder.holds = BROKEN
        try:
            return await self._sent(tenant, prompt, fields)
        finally:
            self.recorder.holds = 0

    async def record(self, tenant: Tenant, prompt: str, **fields: Any) -> Recorded:
        """Sends a completion as this tenant, and returns what the engine was sent for it.

        Raises:
            AuditError: the gateway did not serve it, or sent the engine nothing with a ticket.
        """
        return await self._sent(tenant, prompt, fields, served=True)

    async def _sent(
        self, tenant: Tenant, prompt: str, fields: Mapping[str, Any], *, served: bool = False
    ) -> Recorded:
        for _ in range(self.tries):
            before = len(self.recorder.requests)
            client = Client(self.target, tenant)
            try:
                answer = await client.complete(prompt, **fields)
            except httpx.HTTPError as error:
                raise AuditError(f"the second gateway broke off: {type(error).__name__}") from None
            finally:
                await client.close()
            if served and not answer.ok:
                raise AuditError(f"the second gateway answered {answer.status} to {tenant.name}")
            for request in reversed(self.recorder.requests[before:]):
                if request.method == "POST" and request.header(SEAL_HEADER) and ticket_of(request):
                    return request
        raise AuditError("the gateway sends the engine neither ticket nor seal")


def ticket_of(request: Recorded) -> str:
    """The ticket in a recorded request; empty if there is none."""
    try:
        found = json.loads(request.body).get(_TICKET_FIELD)
    except (ValueError, AttributeError):
        return ""
    return found if isinstance(found, str) else ""


@asynccontextmanager
async def spied_gateway(target: Target, operator: CommandLine, **more: str) -> AsyncIterator[Spied]:
    """Runs it until the end of the block.

    Args:
        more: variables for it besides the operator's.

    Raises:
        AuditError: the engine is not known, or the gateway does not start or become ready.
    """
    port, admin_port = _free_ports(2)
    with Recorder(target.engine_url or "") as recorder:
        # It knows them all: it would take a new salt for known that the others have not heard of.
        engine, *others = engines_of(operator.environ, target)
        environ = {
            **operator.environ,
            **more,
            "SALTWALL_HOST": "127.0.0.1",
            "SALTWALL_PORT": str(port),
            "SALTWALL_ADMIN_HOST": "127.0.0.1",
            "SALTWALL_ADMIN_PORT": str(admin_port),
            "SALTWALL_ENGINES": json.dumps([{**engine, "url": recorder.url}, *others]),
        }
        process = _start([*operator.argv, "gateway"], environ)
        try:
            await _ready(process, f"http://127.0.0.1:{admin_port}/readyz")
            yield Spied(
                replace(target, url=f"http://127.0.0.1:{port}/v1"),
                str(engine["name"]),
                _keys_directory(operator.environ) / f"engine-{engine['name']}.json",
                recorder,
                TRIES if others else 1,
            )
        finally:
            process.terminate()
            try:
                await asyncio.to_thread(process.wait, 30)
            except subprocess.TimeoutExpired:
                process.kill()


def _start(argv: list[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603  # the command is the auditor's own configuration
            argv,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:
        raise AuditError(f"a second gateway cannot be run: {error.strerror}") from None


async def _ready(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + START_S
    async with httpx.AsyncClient(timeout=5, trust_env=False) as http:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise AuditError(f"a second gateway ended at once, with {process.returncode}")
            try:
                if (await http.get(url)).status_code == httpx.codes.OK:
                    return
            except httpx.HTTPError:
                pass
            await asyncio.sleep(POLL_S)  # between polls of a process that starts
    raise AuditError(f"a second gateway was not ready after {START_S:.0f} s")


def engines_of(environ: Mapping[str, str], target: Target) -> Sequence[Mapping[str, Any]]:
    """Those that the operator's gateway knows, the target's first; by default, called as the model.

    Raises:
        AuditError: the target's is none of several.
    """
    try:
        engines = [each for each in json.loads(environ["SALTWALL_ENGINES"]) if each["name"]]
    except (KeyError, ValueError, TypeError):
        engines = []
    wanted = _address(str(target.engine_url))
    engines.sort(key=lambda each: _address(str(each.get("url", ""))) != wanted)
    if len(engines) > 1 and _address(str(engines[0].get("url", ""))) != wanted:
        raise AuditError(f"none of the {len(engines)} engines that the operator has is that one")
    return engines or [{"name": target.model}]


def _address(url: str) -> tuple[str | None, int]:
    """Host and port."""
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname
    return host, parts.port or (443 if parts.scheme == "https" else 80)


def _keys_directory(environ: Mapping[str, str]) -> Path:
    home = Path(environ.get("SALTWALL_HOME") or ".saltwall")
    return Path(environ.get("SALTWALL_KEYS_DIR") or home / "keys")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
