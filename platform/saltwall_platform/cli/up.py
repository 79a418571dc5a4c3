"""`saltwall up`: engine, gateway and two tenants on this machine."""

import asyncio
import json
import os
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from saltwall_platform.cli import session
from saltwall_platform.settings import Settings
from saltwall_platform.stack import (
    demo_model,
    demo_tenants,
    engine_keys,
    install,
    plan,
    preflight,
    running,
    welcome,
)
from saltwall_platform.stack.plan import UpOptions
from saltwall_platform.stack.progress import Progress
from saltwall_platform.stack.readiness import Readiness
from saltwall_platform.stack.running import Running
from saltwall_platform.stack.service import Service
from saltwall_platform.stack.supervisor import Stopped, Supervisor, stop_on_signals
from saltwall_tenants.database import Database
from saltwall_tenants.keyring import Keyring

ENGINE_GRACE_S = 10.0


def up(
    flags: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- VLLM FLAGS",
            help="Further flags for vLLM; they win over those chosen here.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="PATH_OR_HF_ID",
            help="Any text model that vLLM can load. Unset: the demo model.",
            show_default=False,
        ),
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="The model's revision on the hub.", show_default=False)
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port for tenants. [default: 8080]", show_default=False)
    ] = None,
    admin_port: Annotated[
        int | None, typer.Option(help="Port for operators. [default: 8081]", show_default=False)
    ] = None,
    engine_port: Annotated[int, typer.Option(help="Port of the engine.")] = 8100,
    max_model_len: Annotated[
        int | None,
        typer.Option(help="Longest request (tokens). Unset: the model's.", show_default=False),
    ] = None,
    kv_gib: Annotated[int, typer.Option(min=1, help="Memory for the KV cache (GiB).")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON line when ready.")
    ] = False,
) -> None:
    """Run everything on this machine until Ctrl-C: real vLLM, gateway, tenants acme and globex.

    State is kept in ./.saltwall, or SALTWALL_HOME; running it again goes on with that.

    \b
    Examples:
      saltwall up
      saltwall up --port 9080 --model ./my-model --max-model-len 4096
    """
    chosen: dict[str, int] = {}
    if port is not None:
        chosen["port"] = port
    if admin_port is not None:
        chosen["admin_port"] = admin_port
    settings = session.configured(**chosen)
    if model is not None and Path(model).expanduser().exists():
        model = str(Path(model).expanduser().absolute())
    options = UpOptions(
        model=model,
        revision=revision,
        engine_port=engine_port,
        max_model_len=max_model_len,
        kv_gib=kv_gib,
        flags=tuple(flags or ()),
    )
    gpu = install.has_nvidia_gpu(shutil.which("nvidia-smi"))
    # Built first, to refuse a flag before anything is touched.
    plan.engine(options, settings, "model", gpu=gpu, base=os.environ)
    with preflight.only_one(settings.home):
        running.location(settings.home).unlink(missing_ok=True)  # of one that was killed
        run(settings, options, gpu=gpu, as_json=as_json)


def run(settings: Settings, options: UpOptions, *, gpu: bool, as_json: bool) -> None:
    """Prepares everything, starts it, and stays until a signal."""
    progress = Progress()
    preflight.check_system()
    preflight.check_ports(
        {
            "--port": (settings.host, settings.port),
            "--admin-port": (settings.admin_host, settings.admin_port),
            "--engine-port": ("127.0.0.1", options.engine_port),
        }
    )
    preflight.check_resources(settings.home, options.kv_gib)
    supervisor: Supervisor | None = None
    try:
        with stop_on_signals(), ExitStack() as stack:
            keyring = prepare(settings, progress)
            serves, engine, gateway = services(settings, options, gpu=gpu, progress=progress)
            supervisor = Supervisor(engine, gateway, progress)
            supervisor.adopt_orphans()
            readiness = Readiness(welcome.admin_url(settings), engine, gateway)
            began = time.monotonic()
            supervisor.start(readiness)
            readiness.close()
            progress.done(f"ready after {time.monotonic() - began:.0f} s")
            keys = asyncio.run(with_database(settings, keyring))
            stack.enter_context(running.announced(settings.home, serves))
            if as_json:
                pids = {service.name: service.pid for service in (engine, gateway)}
                ready = welcome.document(settings, serves.engine, keys, pids)
                print(json.dumps(ready), flush=True)
            else:
                print(welcome.text(settings, serves.engine.name, keys), flush=True)
            supervisor.keep()
    except Stopped:
        pass
    finally:
        if supervisor is not None:
            supervisor.stop()
    progress.done("stopped; nothing is left running")


def prepare(settings: Settings, progress: Progress) -> Keyring:
    """Makes keys, database and tenants where they are missing."""
    from saltwall_migrations import upgrade

    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    revision = upgrade(settings.database_url)
    progress.done(f"database is at revision {revision}")

    async def tenants() -> Keyring:
        database = Database(settings.database_url)
        try:
            async with database.transaction() as tx:
                keyring = await session.keyring(tx)
            if await demo_tenants.create(database, keyring):
                progress.done(f"created tenants {' and '.join(demo_tenants.NAMES)}")
        finally:
            await database.dispose()
        return keyring

    return asyncio.run(tenants())


def services(
    settings: Settings, options: UpOptions, *, gpu: bool, progress: Progress
) -> tuple[Running, Service, Service]:
    """What will serve: the engine, with model and keys in place, and its gateway."""
    model = options.model
    if model is None:
        model = str(demo_model.prepare(settings.home, progress.done))
    command = plan.engine(options, settings, model, gpu=gpu, base=os.environ)
    engine_keys.write(settings.keys_dir, command.name)
    engine = Service(
        "engine", command.argv, command.environ(os.environ), settings.home, ENGINE_GRACE_S
    )
    environ = plan.gateway_environ(settings, command.name, options.engine_port, os.environ)
    argv = (sys.executable, "-m", "saltwall_platform.cli", "gateway")
    grace_s = settings.shutdown_grace_s + 5
    serves = running.describe(settings, command.name, options.engine_port, model)
    return serves, engine, Service("gateway", argv, environ, settings.home, grace_s)


async def with_database(settings: Settings, keyring: Keyring) -> dict[str, str]:
    """The first keys of the demo tenants."""
    database = Database(settings.database_url)
    try:
        return await demo_tenants.first_keys(database, keyring)
    finally:
        await database.dispose()
