"""Keys and values are found in another process's memory, and whether they are gone."""

import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import kv_process
import pytest

from saltwall_security.errors import AuditError
from saltwall_security.suites.rotation.fingerprints import (
    Fingerprint,
    fingerprints,
    locate,
    pages,
    traces,
    unique,
)
from saltwall_security.suites.rotation.memory import Memory, Snapshot

MINE, OTHERS, NOISE = 7, 8, 9


@dataclass
class Process:
    """A running `kv_process`, its memory, and how it was at each moment."""

    popen: "subprocess.Popen[str]"
    snapshots: list[Snapshot] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert self.popen.stdout is not None
        self.popen.stdout.readline()
        self.memory = Memory(self.popen.pid)

    def tell(self, *blocks: int) -> None:
        """Has blocks written, or with a minus erased."""
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        for block in blocks:
            self.popen.stdin.write(f"{block}\n")
            self.popen.stdin.flush()
            self.popen.stdout.readline()

    def found(self) -> tuple[list[Fingerprint], list[Fingerprint]]:
        """Fingerprints of the second and the third moment."""
        located = locate(
            self.memory, pages(self.snapshots, 1), pages(self.snapshots, 2), random.Random(1)
        )
        both = (fingerprints(self.memory, each) for each in (located.mine, located.others))
        mine, others = unique(self.memory, *both)
        return mine, others


@pytest.fixture
def process() -> Iterator[Process]:
    """One in which two canaries have been written, with noise before and after."""
    argv = [sys.executable, str(Path(kv_process.__file__))]
    popen = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        process = Process(popen)
    except AuditError as error:
        popen.kill()
        pytest.skip(str(error))  # not our process to read, as in some containers
    for blocks in ((NOISE, NOISE), (MINE,), (OTHERS,), (NOISE,)):
        process.tell(*blocks)
        process.snapshots.append(process.memory.snapshot())
    yield process
    popen.communicate(timeout=10)


def test_what_was_written_is_found(process: Process) -> None:
    """Most pages of a block give a fingerprint, and each is where it was and nowhere else."""
    mine, others = process.found()
    for each, left in zip((mine, others), traces(process.memory, mine, others), strict=True):
        assert len(each) > 0.8 * kv_process.BLOCK_BYTES / 4096
        assert (left.same, left.anywhere) == (len(each), len(each))


def test_what_was_erased_is_gone(process: Process) -> None:
    """Zeros stand where it was, and it is nowhere; what was not erased is there still."""
    mine, others = process.found()
    process.tell(-MINE)
    gone, kept = traces(process.memory, mine, others)
    assert (gone.zero, gone.anywhere) == (len(mine), 0)
    assert kept.anywhere == len(others)


def test_what_was_used_again_is_neither_there_nor_zero(process: Process) -> None:
    """Other bytes stand where it was."""
    mine, _ = process.found()
    process.tell(MINE)
    (left,) = traces(process.memory, mine)
    assert (left.zero, left.other, left.anywhere) == (0, len(mine), 0)


@pytest.mark.parametrize("pid", [2**22 + 1])
def test_a_process_that_is_not_there_is_said(pid: int) -> None:
    """With its number."""
    with pytest.raises(AuditError, match=str(pid)):
        Memory(pid)
