"""A machine that cannot run the stack is told so before anything starts."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from saltwall_platform.stack import preflight
from saltwall_platform.stack.errors import StackError


def test_a_taken_port_is_named_with_the_option_that_changes_it() -> None:
    """The other port, which is free, is not mentioned."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(StackError, match=f"port {port} .* --admin-port"):
            preflight.check_ports({"--admin-port": ("127.0.0.1", port)})
    preflight.check_ports({"--admin-port": ("127.0.0.1", port)})


def test_ports_must_differ() -> None:
    """Two listeners on one port would fail later and less clearly."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(StackError, match="must differ"):
        preflight.check_ports({"--port": ("127.0.0.1", port), "--admin-port": ("127.0.0.1", port)})


def test_a_containers_limit_counts(tmp_path: Path) -> None:
    """What the host has free does not help a container that is full."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 32000000 kB\nMemAvailable: 16000000 kB\n")
    assert preflight.available_memory_gb(meminfo, tmp_path) == pytest.approx(16.384)
    (tmp_path / "memory.max").write_text("max\n")
    assert preflight.available_memory_gb(meminfo, tmp_path) == pytest.approx(16.384)
    (tmp_path / "memory.max").write_text("4000000000\n")
    (tmp_path / "memory.current").write_text("3000000000\n")
    assert preflight.available_memory_gb(meminfo, tmp_path) == pytest.approx(1.0)


def test_too_little_memory_or_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With both numbers."""
    monkeypatch.setattr(preflight, "available_memory_gb", lambda: 1.5)
    with pytest.raises(StackError, match=r"1\.5 GB of memory are free, 4 GB are needed"):
        preflight.check_resources(tmp_path, kv_gib=1)
    monkeypatch.setattr(preflight, "available_memory_gb", lambda: None)
    monkeypatch.setattr(preflight, "free_disk_gb", lambda path: 0.2)
    with pytest.raises(StackError, match="SALTWALL_HOME"):
        preflight.check_resources(tmp_path, kv_gib=1)


def test_one_data_directory_is_for_one_process(tmp_path: Path) -> None:
    """The other is named; when it is gone, even by kill -9, the directory is free again."""
    script = (
        "import sys, time; from pathlib import Path; "
        "from saltwall_platform.stack.preflight import only_one\n"
        "with only_one(Path(sys.argv[1])): print(flush=True); time.sleep(600)"
    )
    other = subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE)
    assert other.stdout is not None
    other.stdout.readline()
    with (
        pytest.raises(StackError, match=f"process {other.pid}"),
        preflight.only_one(tmp_path),
    ):
        pass
    other.kill()
    other.communicate()
    with preflight.only_one(tmp_path):
        assert (tmp_path / "up.lock").read_text() == f"{os.getpid()}\n"
