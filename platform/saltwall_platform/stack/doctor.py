"""Looks over an installation; each finding says what to do."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx

from saltwall_platform.settings import Settings
from saltwall_platform.stack import demo_model, preflight, vllm_install, welcome
from saltwall_tenants import audit_checkpoints
from saltwall_tenants.database import sqlite_path
from saltwall_tenants.keyring import FILE_NAME, Keyring
from saltwall_tenants.wire import EngineKeys, KeyFileError
from saltwall_tenants.wire.attestation import supported_vllm, vllm_range

Level = Literal["ok", "warn", "fail"]
INSTALL_VLLM = "in a checkout `make up` installs it for CPUs, pip install '.[engine]' for GPUs"

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `message` says what to do unless it is ok."""

    level: Level
    subject: str
    message: str


def data(home: Path) -> Finding:
    """Which installation this is about."""
    if home.is_dir():
        return Finding("ok", "data", str(home))
    message = f"nothing at {home}: set SALTWALL_HOME to your installation's, or run `saltwall up`"
    return Finding("warn", "data", message)


def python() -> Finding:
    """This interpreter; pip refuses to install into one that is too old."""
    return Finding("ok", "python", f"{sys.version.split()[0]} at {sys.executable}")


def vllm() -> Finding:
    """Whether an engine of the tested range can run here."""
    found = vllm_install.version()
    if found is None:
        message = f"not installed: this machine can run a gateway, but no engine; {INSTALL_VLLM}"
        return Finding("warn", "vllm", message)
    if not supported_vllm(found):
        return Finding("fail", "vllm", f"{found} is untested: install vllm{vllm_range()}")
    return Finding("ok", "vllm", found)


def torch() -> Finding:
    """Whether torch loads: the wrong build fails only then. In a process of its own."""
    code = "import torch; print(torch.__version__, 'CUDA' if torch.cuda.is_available() else 'CPU')"
    run = subprocess.run(  # noqa: S603  # our own arguments
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False
    )
    if run.returncode == 0:
        return Finding("ok", "torch", run.stdout.strip())
    last = (run.stderr.strip().splitlines() or ["it ended without a word"])[-1]
    if "No module named 'torch'" in last:
        return Finding("warn", "torch", f"not installed: no engine can run here; {INSTALL_VLLM}")
    return Finding("fail", "torch", f"does not load ({last}): install torch again")


def model(home: Path) -> Finding:
    """The converted demo model, against its digests."""
    directory = demo_model.directory(home)
    if not directory.exists():
        return Finding("warn", "demo model", "not there yet: `saltwall up` makes it")
    wrong = demo_model.faults(directory)
    if wrong:
        message = f"damaged ({', '.join(wrong)}): the next `saltwall up` makes it again"
        return Finding("warn", "demo model", message)
    return Finding("ok", "demo model", str(directory))


def database(settings: Settings, revisions: Callable[[str], tuple[str | None, str]]) -> Finding:
    """Whether the database answers and has this release's schema."""
    try:
        current, head = revisions(settings.database_url)
    except Exception as error:  # whatever a driver raises: the class says enough, no URL leaks
        message = f"does not answer ({type(error).__name__}): look at SALTWALL_DATABASE_URL"
        return Finding("fail", "database", message)
    if current == head:
        return Finding("ok", "database", f"at revision {head}")
    is_now = "empty" if current is None else f"at revision {current}"
    return Finding("fail", "database", f"is {is_now}, not {head}: run `saltwall db upgrade`")


def keys(settings: Settings) -> Iterator[Finding]:
    """The key files: there, readable, and by us alone."""
    directory = settings.keys_dir
    if not (directory / FILE_NAME).exists():
        message = (
            f"{directory / FILE_NAME} is missing: restore it from your backup; "
            "while there is no tenant yet, the first `saltwall tenant create` makes it"
        )
        yield Finding("warn", "keys", message)
    if not directory.is_dir():
        return
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & 0o077:
        yield Finding("fail", "keys", f"others can look into {directory}: chmod 700 {directory}")
    for path in sorted(directory.glob("*.json")):
        try:
            if path.name == FILE_NAME:
                Keyring.load(directory)
            elif path.name == audit_checkpoints.FILE_NAME:
                audit_checkpoints.SigningKey.load(directory)
            else:
                EngineKeys.read(path)
        except KeyFileError as error:
            yield Finding("fail", "keys", str(error))
        else:
            yield Finding("ok", "keys", str(path))


def apart(settings: Settings) -> Iterator[Finding]:
    """Whether one stolen disk or backup holds both the sealed salts and what opens them."""
    path = sqlite_path(settings.database_url)
    if path is None or not path.exists() or not settings.keys_dir.exists():
        return
    if path.stat().st_dev == settings.keys_dir.stat().st_dev:
        message = (
            "database and keys are on one disk: fine for a trial; otherwise set SALTWALL_KEYS_DIR "
            "to another, and keep it out of the database's backups"
        )
        yield Finding("warn", "keys", message)


def ports(settings: Settings) -> Iterator[Finding]:
    """Whether our ports are free, or served by our gateway."""
    try:
        answer = httpx.get(f"{welcome.admin_url(settings)}/readyz", timeout=2, trust_env=False)
        document = answer.json()
        state = "ready" if document["ready"] else f"not ready: {', '.join(document['reasons'])}"
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        wanted = {
            "SALTWALL_PORT": (settings.host, settings.port),
            "SALTWALL_ADMIN_PORT": (settings.admin_host, settings.admin_port),
        }
        for variable, (host, port) in wanted.items():
            if preflight.port_is_free(host, port):
                yield Finding("ok", "ports", f"{port} is free")
            else:
                message = f"{port} is taken by another program: set {variable}"
                yield Finding("fail", "ports", message)
        yield from engine_ports(settings)
        return
    level: Level = "ok" if document["ready"] else "warn"
    yield Finding(level, "gateway", f"runs on port {settings.port}, {state}")
    yield from unenforced(document["engines"])


def engine_ports(settings: Settings) -> Iterator[Finding]:
    """Whether the ports of engines on this machine are free, while no gateway says more of them."""
    for engine in settings.engines:
        url = urlsplit(engine.url)
        if url.hostname not in LOOPBACK or url.port is None:
            continue
        if preflight.port_is_free(url.hostname, url.port):
            yield Finding("ok", "ports", f"{url.port} is free")
        else:
            message = (
                f"{url.port} is taken: unless by engine {engine.name}, choose another "
                "(`saltwall up --engine-port`, SALTWALL_ENGINES)"
            )
            yield Finding("warn", "ports", message)


def unenforced(engines: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Engines that serve under other quotas than those that are stored, by the gateway's word."""
    for engine in engines:
        if engine["routable"] and engine.get("quotas_problem"):
            problem = f"{engine['engine']} enforces older ones: {engine['quotas_problem']}"
            yield Finding("warn", "quotas", f"{problem} (`saltwall quota show`)")


def resources(home: Path) -> Iterator[Finding]:
    """Memory and disk for an engine here."""
    memory, disk = preflight.available_memory_gb(), preflight.free_disk_gb(home)
    if memory is not None:
        enough = memory >= preflight.NEEDED_MEMORY_GB
        advice = "" if enough else f"; an engine needs {preflight.NEEDED_MEMORY_GB:.0f} GB"
        yield Finding("ok" if enough else "warn", "memory", f"{memory:.1f} GB are free{advice}")
    enough = disk >= preflight.NEEDED_DISK_GB
    advice = "" if enough else ": free some, or set SALTWALL_HOME to another disk"
    yield Finding("ok" if enough else "fail", "disk", f"{disk:.1f} GB are free{advice}")


def examine(
    settings: Settings, revisions: Callable[[str], tuple[str | None, str]]
) -> Iterator[Finding]:
    """Everything, in the order of what depends on what.

    Args:
        revisions: reads a database's revision and this release's.
    """
    yield data(settings.home)
    yield python()
    yield vllm()
    yield torch()
    yield model(settings.home)
    yield database(settings, revisions)
    yield from keys(settings)
    yield from apart(settings)
    yield from ports(settings)
    yield from resources(settings.home)
    if os.environ.get("PYTHONHASHSEED", "random") != "random":
        yield Finding("warn", "environment", "PYTHONHASHSEED is set; `saltwall engine` unsets it")
