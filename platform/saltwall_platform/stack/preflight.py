"""What this machine must offer before `saltwall up` starts anything."""

import fcntl
import os
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from saltwall_platform.stack.errors import StackError

NEEDED_MEMORY_GB: Final = 4.0
NEEDED_DISK_GB: Final = 1.0
GB: Final = 1e9


def port_is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def available_memory_gb(
    meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")
) -> float | None:
    """Memory that programs can still get (GB), a container's limit included; None if unknown."""
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        available = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    try:
        limit = int((cgroup / "memory.max").read_text())
        available = min(available, limit - int((cgroup / "memory.current").read_text()))
    except (OSError, ValueError):
        pass  # no limit
    return available / GB


def free_disk_gb(path: Path) -> float:
    """Free space (GB) where `path` is, or will be."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free / GB


def check_system() -> None:
    """Raises:
    StackError: this is no Linux, whose prctl(2) ends what would be left behind.
    """
    if sys.platform != "linux":
        raise StackError("`saltwall up` runs on Linux: use a container or a virtual machine")


def check_ports(ports: Mapping[str, tuple[str, int]]) -> None:
    """Raises:
    StackError: a port is taken; `ports` maps the option that sets one to host and port.
    """
    for option, (host, port) in ports.items():
        if not port_is_free(host, port):
            raise StackError(
                f"port {port} on {host} is taken by another program: stop that, or choose another "
                f"with {option}"
            )
    if len({port for _, port in ports.values()}) < len(ports):
        raise StackError(f"{', '.join(ports)} must differ")


def check_resources(home: Path, kv_gib: int) -> None:
    """Raises:
    StackError: too little memory or disk is free.
    """
    needed = NEEDED_MEMORY_GB + kv_gib - 1
    memory = available_memory_gb()
    if memory is not None and memory < needed:
        raise StackError(
            f"{memory:.1f} GB of memory are free, {needed:.0f} GB are needed: stop other programs"
        )
    disk = free_disk_gb(home)
    if disk < NEEDED_DISK_GB:
        raise StackError(
            f"{disk:.1f} GB are free at {home}, {NEEDED_DISK_GB:.0f} GB is needed: free some, or "
            "set SALTWALL_HOME to another disk"
        )


@contextmanager
def only_one(home: Path) -> Iterator[None]:
    """Holds the data directory for this process; the kernel lets go when the process ends.

    Raises:
        StackError: another `saltwall up` holds it.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(home / "up.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 20).decode().strip()
            raise StackError(
                f"`saltwall up` already runs in {home} (process {holder}): stop it with Ctrl-C, or "
                "set SALTWALL_HOME to another directory"
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)


def is_held(home: Path) -> bool:
    """Whether a `saltwall up` holds the data directory."""
    try:
        descriptor = os.open(home / "up.lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
