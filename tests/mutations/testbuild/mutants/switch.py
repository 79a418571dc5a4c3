"""Which defect is on: the name in a file, read by every process of the test build.

Turning a defect on or off takes effect with the next call of a function that it replaces.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

VARIABLE = "MUTATION_SWITCH"
"""Names the file; without it no defect is ever on."""

_seen: tuple[int, int] | None = None
_name = ""
_scratch: dict[Any, Any] = {}
_reached = False
_local = threading.local()


def active() -> str:
    """The name of the defect that is on in this thread now; empty for none."""
    global _seen, _name, _scratch, _reached
    path = os.environ.get(VARIABLE)
    if path is None or getattr(_local, "off", False):
        return ""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return ""
    seen = found.st_mtime_ns, found.st_ino
    if seen != _seen:
        _name, _scratch, _reached = Path(path).read_text().strip(), {}, False
        _seen = seen
    return _name


def note_reached() -> None:
    """Leaves a mark that a process has run the defective code since the defect was turned on."""
    global _reached
    if not _reached:
        _reached = True
        _mark(Path(os.environ[VARIABLE])).touch()


def scratch() -> dict[Any, Any]:
    """What defective code remembers in this process until the defect is turned off."""
    return _scratch


@contextmanager
def off() -> Iterator[None]:
    """Inside, this thread runs the product as it is."""
    before, _local.off = getattr(_local, "off", False), True
    try:
        yield
    finally:
        _local.off = before


class Switch:
    """The driver's end of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.set("")

    def set(self, name: str) -> None:
        """Turns this defect on, alone, in all processes; an empty name turns all off."""
        if name:
            _mark(self._path).unlink(missing_ok=True)
        fresh = self._path.with_name(f"{self._path.name}.fresh")
        fresh.write_text(name)
        fresh.replace(self._path)

    @property
    def reached(self) -> bool:
        """Whether any process has run the code of the defect that was turned on last."""
        return _mark(self._path).exists()


def _mark(path: Path) -> Path:
    return path.with_name(f"{path.name}.reached")
