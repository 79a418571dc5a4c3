"""What `saltwall audit run` attacks, from what it was told and what runs on this machine."""

import importlib.util
import os
import secrets
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from saltwall_platform.cli import audit_keys, audit_signals, session
from saltwall_platform.cli.errors import CliError
from saltwall_platform.cli.prepared import PreparedCommandLine
from saltwall_platform.settings import Engine, Settings
from saltwall_platform.stack import engine_keys, preflight, running, stock_vllm, welcome
from saltwall_security.errors import AuditError
from saltwall_security.operator import CommandLine
from saltwall_security.suites.restart import RESTARTED_S
from saltwall_security.target import Target, Tenant
from saltwall_security.trust import system_trust
from saltwall_tenants.database import sqlite_path
from saltwall_tenants.wire import EngineKeys

STOCK = "stock"
EXAMPLE = "https://llm.example/v1, or `stock`"
ENGINE_EXAMPLE = "http://127.0.0.1:8100"
OUR_SCHEDULER = "saltwall_engine.scheduler:scheduler_class"
STOCK_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"
LETTERS = "abc"
"""One temporary tenant each: a victim, an attacker, and a bystander."""

Note = Callable[[str], None]


@dataclass(frozen=True)
class Given:
    """The options of `saltwall audit run` that say what to attack, and with what."""

    target: str | None = None
    engine: str | None = None
    engine_keys: Path | None = None
    keys: Sequence[str] = ()
    model: str | None = None
    home: Path | None = None
    operator: str | None = None
    files: Sequence[Path] = ()
    engine_pid: int | None = None
    scheduler: str | None = None
    restart: str | None = None
    label: str | None = None

    @property
    def local(self) -> bool:
        """Whether it is an installation on this machine that is attacked."""
        return self.target is None or self.home is not None


@contextmanager
def opened(given: Given, note: Note) -> Iterator[Target]:
    """The target; tenants that had to be created for it are deleted at the end of the block.

    Raises:
        CliError, AuditError: it cannot be attacked; the message says what to do.
    """
    if given.target == STOCK:
        with stock(given, note) as target:
            yield target
        return
    target = _here(given) if given.local else _elsewhere(given)
    target = replace(
        target,
        model=given.model or target.model,
        files=given.files or target.files,
        engine_pid=given.engine_pid or target.engine_pid,
        scheduler=given.scheduler or target.scheduler,
        label=given.label or target.label,
        restart=None if given.restart is None else _restart(_argv("--restart", given.restart)),
    )
    if given.engine_keys is not None:
        target = replace(target, control_secret=EngineKeys.read(given.engine_keys).control)
    operator = target.operator
    if given.operator is not None:
        operator = CommandLine(_argv("--operator", given.operator), os.environ)
    if not isinstance(operator, CommandLine):
        if not given.keys:
            raise CliError(
                "two tenants are needed: give their keys (--keys FILE, or --keys NAME=env:VARIABLE "
                "twice; `--keys none` for a server without keys), or --operator 'saltwall'"
            )
        yield replace(target, tenants=audit_keys.tenants(given.keys))
        return
    try:
        if given.keys:
            tenants = audit_keys.tenants(given.keys)
        else:
            note("creating three tenants for the audit; they are deleted at its end")
            tenants = _created(operator)
        yield replace(target, tenants=tenants, operator=operator)
    finally:
        with audit_signals.undisturbed():
            for problem in operator.delete_leftovers():
                note(f"saltwall: {problem}")


@contextmanager
def stock(given: Given, note: Note) -> Iterator[Target]:
    """Stock vLLM on this machine, with the model that Saltwall has here, until the end."""
    with stock_vllm.serving(_settings(given).home, note) as server:
        yield Target(
            url=f"{server.url}/v1",
            tenants=audit_keys.tenants(given.keys or [audit_keys.KEYLESS]),
            engine_url=server.url,
            files=[server.log],
            engine_pid=server.pid,
            scheduler=STOCK_SCHEDULER,
            label=given.label or "stock vLLM",
        )


def named(url: str) -> str:
    """What to call the server at a URL."""
    return urlsplit(url).netloc.rpartition("@")[2] or url


def check_url(option: str, url: str | None, example: str = EXAMPLE) -> None:
    """Raises:
    CliError: it is none, and not `stock` either.
    """
    if url is None or (url == STOCK and example == EXAMPLE):
        return
    try:
        parsed = httpx.URL(url)
        sound = parsed.scheme in ("http", "https") and parsed.host and urlsplit(url).port != 0
    except (httpx.InvalidURL, ValueError):
        sound = False
    if not sound:
        raise CliError(f"{option}: give a URL such as {example}")


def _argv(option: str, command: str) -> list[str]:
    """Raises:
    CliError: it is no command.
    """
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise CliError(f"{option}: {error}") from None
    if not argv:
        raise CliError(f"{option}: give a command")
    return argv


def _elsewhere(given: Given) -> Target:
    url = str(given.target)
    return Target(url.rstrip("/"), [], engine_url=given.engine, label=named(url))


def _here(given: Given) -> Target:
    """The installation in a data directory of this machine, with all that can be had there."""
    settings = _settings(given)
    if given.target is None and running.starting(settings.home):
        raise CliError(
            f"`saltwall up` is still starting in {settings.home}: wait until it is ready"
        )
    url = (given.target or f"{welcome.base_url(settings)}/v1").rstrip("/")
    _look(url, settings.home)
    engine = _engine(settings, given)
    path = engine_keys.location(settings.keys_dir, engine.name)
    # For the gateways that are started beside ours, which do not look for `saltwall up`.
    listed = ",".join(each.model_dump_json() for each in settings.engines)
    found = {"SALTWALL_HOME": str(settings.home), "SALTWALL_ENGINES": f"[{listed}]"}
    return Target(
        url,
        [],
        engine_url=given.engine or engine.url,
        control_secret=EngineKeys.read(path).control if path.exists() else None,
        operator=PreparedCommandLine(os.environ | found),
        files=_traces(settings),
        engine_pid=_pid(settings.home),
        scheduler=OUR_SCHEDULER if importlib.util.find_spec("vllm") else None,
        label="Saltwall",
        admin_url=welcome.admin_url(settings),
    )


def _restart(argv: Sequence[str]) -> Callable[[], None]:
    def run() -> None:
        try:
            done = subprocess.run(  # noqa: S603  # the auditor's own configuration
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=RESTARTED_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise AuditError(f"--restart: {type(error).__name__}") from None
        if done.returncode:
            raise AuditError(f"--restart: the command ended with exit code {done.returncode}")

    return run


def _settings(given: Given) -> Settings:
    return session.settings(**({} if given.home is None else {"home": given.home}))


def _engine(settings: Settings, given: Given) -> Engine:
    for engine in settings.engines:
        if given.model in engine.models or engine.url == given.engine:
            return engine
    return settings.engines[0]


def _look(url: str, home: Path) -> None:
    """Raises:
    CliError: nothing answers there, so there is nobody to create tenants for.
    """
    try:
        with httpx.stream(
            "GET", f"{url}/models", timeout=10, trust_env=False, verify=system_trust()
        ):
            pass
    except httpx.HTTPError:
        raise CliError(
            f"nothing answers at {url} (data directory {home}): start Saltwall here with "
            "`saltwall up`, or say what to attack: --target URL --keys FILE"
        ) from None


def _traces(settings: Settings) -> list[Path]:
    places = (settings.home / "logs", sqlite_path(settings.database_url))
    return [path for path in places if path is not None and path.exists()]


def _pid(home: Path) -> int | None:
    if not preflight.is_held(home):  # a number that was left behind may be another process now
        return None
    try:
        return int((home / "run" / "engine.pid").read_text())
    except (OSError, ValueError):
        return None


def _created(operator: CommandLine) -> list[Tenant]:
    run = secrets.token_hex(3)
    return [operator.create_tenant(f"audit-{run}-{letter}") for letter in LETTERS]
