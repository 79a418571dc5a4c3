"""Tells other commands of the same data directory where `saltwall up` serves, while it does."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from saltwall_platform.settings import Engine, Settings
from saltwall_platform.stack import preflight
from saltwall_tenants.wire.keys import write_private


class Running(BaseModel):
    """What `saltwall up` was told on its command line, or took by default; no secret.

    `model` is the directory or id that vLLM has loaded.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str
    port: int
    admin_host: str
    admin_port: int
    engine: Engine
    model: str

    def settings(self) -> dict[str, Any]:
        """The settings that follow from it, by name."""
        return self.model_dump(exclude={"engine", "model"}) | {"engines": (self.engine,)}


def describe(settings: Settings, name: str, engine_port: int, model: str) -> Running:
    """What is about to serve with these settings."""
    return Running(
        host=settings.host,
        port=settings.port,
        admin_host=settings.admin_host,
        admin_port=settings.admin_port,
        engine=Engine(name=name, url=f"http://127.0.0.1:{engine_port}"),
        model=model,
    )


def location(home: Path) -> Path:
    """Where it is written, readable by the owner alone."""
    return home / "run" / "ready.json"


@contextmanager
def announced(home: Path, running: Running) -> Iterator[None]:
    """Others can find it until the end of the block."""
    path = location(home)
    write_private(path, running.model_dump_json(indent=1).encode())
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def starting(home: Path) -> bool:
    """Whether `saltwall up` holds a data directory and does not serve yet."""
    return preflight.is_held(home) and not location(home).exists()


def find(home: Path) -> Running | None:
    """What runs in a data directory now; None if nothing does, or it is not ready yet."""
    try:
        text = location(home).read_text()
    except OSError:
        return None
    if not preflight.is_held(home):  # one that was killed has left it behind
        return None
    try:
        return Running.model_validate_json(text)
    except ValidationError:  # another release's
        return None
