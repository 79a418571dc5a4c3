"""Where secrets could be left: files, metrics, what commands print, how processes were started."""

import asyncio
import os
import stat
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from saltwall_security.bounded_http import http_client
from saltwall_security.engine_control import METRICS, USAGE, EngineControl
from saltwall_security.errors import AuditError
from saltwall_security.processes import ancestors, tree
from saltwall_security.suites.secrecy.packed import unpacked
from saltwall_security.target import Operator, Target

MOST_BYTES = 512 * 2**20
MOST_FILES = 100_000
"""In one of the directories given: a link can lead to all that there is."""
DATABASE_ENDS = ("-wal", "-journal", "-shm")
SQLITE = b"SQLite format 3\0"
SETTLED_S, PATIENCE_S = 0.4, 4.0
ADMIN = ("/metrics", "/readyz", "/healthz")
COMMANDS = (("doctor",), ("tenant", "list", "--json"), ("quota", "show"))


@dataclass(frozen=True)
class Found:
    """A place, and what stands there.

    Args:
        content: None where it cannot be read.
        fresh: it was written to during the run.
        whole: nothing more stands there.
    """

    place: str
    content: bytes | None
    fresh: bool = True
    whole: bool = True


def files(paths: Sequence[Path]) -> list[Path]:
    """All files that are meant, also those within directories, and what there cannot be read."""
    found: list[Path] = []
    for path in paths:
        found += _within(path) if path.is_dir() else [path]
        if path.suffix == ".db":
            found += (path.with_name(path.name + end) for end in DATABASE_ENDS)
    # One that was named and cannot be read must not count as searched.
    return [path for path in dict.fromkeys(found) if path in paths or _is_file(path)]


def _within(directory: Path) -> list[Path]:
    """All that is there, also behind links; where that is too much, itself as well."""
    found: list[Path] = []
    seen: set[str] = set()

    def denied(error: OSError) -> None:
        found.append(Path(error.filename))

    for folder, folders, names in os.walk(directory, onerror=denied, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:  # links can lead around in a circle
            folders.clear()
            continue
        seen.add(real)
        found.extend(Path(folder, name) for name in names)
        if len(found) + len(seen) > MOST_FILES:
            return [directory, *sorted(found)[:MOST_FILES]]
    return sorted(found)


def _is_file(path: Path) -> bool:
    """Whether there is something to read, which reading may find to be forbidden, or elsewhere."""
    try:
        return path.is_file() or path.is_dir() or (path.is_symlink() and not path.exists())
    except OSError:
        return True


def is_database(path: Path) -> bool:
    """Whether a file belongs to an SQLite database."""
    if path.name.endswith(DATABASE_ENDS):
        return True
    if path.is_file():  # opening a pipe would wait for whoever writes to it
        with suppress(OSError), path.open("rb") as file:
            return file.read(len(SQLITE)) == SQLITE
    return False


def read(paths: Sequence[Path], since: float) -> Iterator[Found]:
    """The files' contents, unpacked; the ends of very large ones.

    Args:
        since: what was written after this moment (seconds since 1970) is fresh.
    """
    for path in paths:
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                yield Found(path.name, None)
                continue
            with path.open("rb") as file:
                state = os.fstat(file.fileno())
                file.seek(max(0, state.st_size - MOST_BYTES))
                content = file.read(MOST_BYTES)
        except OSError as error:
            gone = isinstance(error, FileNotFoundError)
            if not (gone and path.name.endswith(DATABASE_ENDS)):  # journals come and go
                yield Found(path.name, None)
        else:
            whole = True
            if not is_database(path):  # whose pages look packed
                content, whole = unpacked(content, MOST_BYTES)
            whole = whole and state.st_size <= MOST_BYTES
            yield Found(path.name, content, state.st_mtime >= since, whole)


async def settled(paths: Sequence[Path]) -> None:
    """Waits until nothing is written to the files any more, for a while."""
    until, before = time.monotonic() + PATIENCE_S, -1
    while time.monotonic() < until:
        now = sum(_size(path) for path in files(paths))
        if now == before:
            return
        before = now
        await asyncio.sleep(SETTLED_S)  # between looks at what others write


def _size(path: Path) -> int:
    with suppress(OSError):  # it may be gone by now
        return path.stat().st_size
    return 0


async def metrics(target: Target) -> AsyncIterator[Found]:
    """What engine and gateway tell of themselves."""
    if target.control_secret and target.engine_url:
        async with EngineControl(target) as control:
            for path in (*METRICS, USAGE):
                with suppress(AuditError):
                    yield Found(f"the engine's {path}", (await control.text(path)).encode())
    if target.admin_url:
        async with http_client(10) as http:
            for path in ADMIN:
                with suppress(httpx.HTTPError):
                    answer = await http.get(target.admin_url.rstrip("/") + path)
                    yield Found(f"the operators' {path}", answer.content)


async def commands(operator: Operator, model: str | None, tenant: str) -> AsyncIterator[Found]:
    """What the command line prints for operators to read, and to paste into tickets."""
    wanted = [
        *COMMANDS,
        ("key", "list", tenant),
        ("salt", "list", tenant, "--json"),
        ("engine", "--print", "--name", str(model), "--", "--model", str(model)),
    ]
    every = await asyncio.gather(
        *(asyncio.to_thread(operator.printed, *arguments) for arguments in wanted),
        return_exceptions=True,
    )
    for arguments, printed in zip(wanted, every, strict=True):
        content = printed.encode() if isinstance(printed, str) else None
        yield Found(f"saltwall {' '.join(arguments[:2])}", content)


def processes(pid: int) -> Iterator[Found]:
    """Command lines and environments of the engine, and of what was started along with it.

    The auditor's own are left out: it was given keys.
    """
    own = {os.getpid(), *ancestors(os.getpid())}
    root = pid
    for above in ancestors(pid):
        if b"saltwall" not in (_of(above, "cmdline") or b"") or above in own:
            break
        root = above
    for each in tree(root):
        if each not in own:
            for what in ("cmdline", "environ"):
                yield Found(f"process {each}'s {what}", _of(each, what))


def _of(pid: int, what: str) -> bytes | None:
    """Empty where the process has ended; None where it is somebody else's."""
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
    except OSError:
        return None
