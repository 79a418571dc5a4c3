"""The memory of a process and its children, as the machine's owner reads it (`/proc/PID/mem`).

Needs root, or the same user and permission to trace. Only private memory without a file behind it
is read, as far as it is in use, in pages.
"""

import os
import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from saltwall_security.errors import AuditError
from saltwall_security.processes import tree

PAGE = 4096
WINDOW = 64
"""Bytes of a fingerprint; they are looked for where a multiple of so many bytes begins."""
CHUNK = 4 * 2**20
MOST_BYTES = 32 * 2**30
_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ (\d+)\s*(.*)")
_IN_USE = np.uint64(0b11 << 62)
"""Of an entry in pagemap: in memory, or swapped out."""

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Place:
    """An address in a process."""

    pid: int
    address: int


@dataclass(frozen=True)
class Snapshot:
    """A sum for every page in use, by process: addresses in order, and their sums."""

    pages: Mapping[int, tuple[Words, Words]]

    def changed(self, later: "Snapshot") -> set[Place]:
        """Pages that hold something else later, or that were not there."""
        return {
            Place(pid, int(address))
            for pid, (addresses, sums) in later.pages.items()
            for address in addresses[~self._alike(pid, addresses, sums)]
        }

    def _alike(self, pid: int, addresses: Words, sums: Words) -> NDArray[np.bool_]:
        mine, before = self.pages.get(pid, (addresses[:0], sums[:0]))
        if not len(mine):
            return np.zeros(len(addresses), dtype=np.bool_)
        at = np.minimum(np.searchsorted(mine, addresses), len(mine) - 1)
        alike: NDArray[np.bool_] = (mine[at] == addresses) & (before[at] == sums)
        return alike


class Memory:
    """What a process and its children have in memory now."""

    def __init__(self, pid: int) -> None:
        """
        Raises:
            AuditError: it is not there, or may not be read, or has too much to read.
        """
        self.pids = tree(pid)
        weights = np.random.default_rng(0).integers(1, 2**63, PAGE // 8, dtype=np.uint64)
        self._weights = weights * np.uint64(2) + np.uint64(1)
        total = sum(end - start for each in self.pids for start, end in self._used(each))
        if total > MOST_BYTES:
            raise AuditError(f"process {pid} uses {total / 2**30:.0f} GiB: too much to search")

    def snapshot(self) -> Snapshot:
        """A sum for every page."""
        pages = {}
        for pid in self.pids:
            addresses, sums = [], []
            for start, data in self._chunks(pid):
                rows = data.reshape(-1, PAGE // 8)
                addresses.append(start + PAGE * np.arange(len(rows), dtype=np.uint64))
                sums.append(np.einsum("ij,j->i", rows, self._weights))
            if addresses:
                pages[pid] = np.concatenate(addresses), np.concatenate(sums)
        return Snapshot(pages)

    def find(self, windows: Collection[bytes]) -> dict[bytes, list[Place]]:
        """Where each of these windows is, in all of the memory."""
        found: dict[bytes, list[Place]] = {window: [] for window in windows}
        weights = self._weights[: WINDOW // 8]
        sums = np.sort(
            [np.dot(np.frombuffer(window, dtype=np.uint64), weights) for window in found]
        )
        for pid in self.pids if found else ():
            for start, data in self._chunks(pid):
                rows = data.reshape(-1, WINDOW // 8)
                here = np.einsum("ij,j->i", rows, weights)
                at = np.minimum(np.searchsorted(sums, here), len(sums) - 1)
                for row in np.flatnonzero(sums[at] == here):
                    window = rows[row].tobytes()
                    if window in found:
                        found[window].append(Place(pid, int(start) + int(row) * WINDOW))
        return found

    def read(self, place: Place, size: int) -> bytes:
        """Bytes at a place; fewer, or none, where there is no memory any more."""
        try:
            with _open(place.pid) as memory:
                return os.pread(memory.fileno(), size, place.address)
        except (OSError, AuditError):
            return b""

    def mappings(self, places: Collection[Place]) -> dict[Place, Place]:
        """By place, where the mapping begins that it is in."""
        starts = {pid: [start for start, _ in _mappings(pid)] for pid in self.pids}
        found = {}
        for place in places:
            at = bisect_right(starts[place.pid], place.address) - 1
            found[place] = Place(place.pid, starts[place.pid][at] if at >= 0 else place.address)
        return found

    def _chunks(self, pid: int) -> Iterator[tuple[np.uint64, Words]]:
        with _open(pid) as memory:
            for start, end in self._used(pid):
                try:
                    data = os.pread(memory.fileno(), end - start, start)
                except OSError:  # unmapped meanwhile, or memory of a device
                    continue
                whole = len(data) - len(data) % PAGE
                if whole:
                    yield np.uint64(start), np.frombuffer(data[:whole], dtype=np.uint64)

    def _used(self, pid: int) -> Iterator[tuple[int, int]]:
        """Parts of mappings, of at most a chunk, in which there is a page in use."""
        try:
            with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
                for start, end in _mappings(pid):
                    for at in range(start, end, CHUNK):
                        until = min(at + CHUNK, end)
                        raw = os.pread(pagemap.fileno(), (until - at) // PAGE * 8, at // PAGE * 8)
                        if (np.frombuffer(raw, dtype=np.uint64) & _IN_USE).any():
                            yield at, until
        except OSError as error:
            raise AuditError(f"the memory map of process {pid}: {error.strerror}") from None


def _open(pid: int) -> BinaryIO:
    try:
        return Path(f"/proc/{pid}/mem").open("rb", buffering=0)
    except OSError as error:
        raise AuditError(f"the memory of process {pid} cannot be read: {error.strerror}") from None


def _mappings(pid: int) -> Sequence[tuple[int, int]]:
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError as error:
        raise AuditError(f"the memory map of process {pid}: {error.strerror}") from None
    found = []
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            continue
        start, end, rights, inode, name = match.groups()
        anonymous = inode == "0" and name[:5] in ("", "[heap", "[anon")
        if anonymous and rights.startswith("rw"):
            found.append((int(start, 16), int(end, 16)))
    return found
