"""Processes of this machine, as `/proc` shows them."""

from pathlib import Path

from saltwall_security.errors import AuditError


def tree(pid: int) -> list[int]:
    """A process and everything that it has started, directly or not.

    Raises:
        AuditError: there is no such process.
    """
    parents = _parents()
    if pid not in parents:
        raise AuditError(f"there is no process {pid} on this machine")
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


def ancestors(pid: int) -> list[int]:
    """Who has started a process, the nearest first."""
    parents, found = _parents(), []
    while (pid := parents.get(pid, 0)) > 1:
        found.append(pid)
    return found


def _parents() -> dict[int, int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        parents[int(path.parent.name)] = int(fields[1])
    return parents
