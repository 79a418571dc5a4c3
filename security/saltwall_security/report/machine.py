"""The machine that an audit runs on, as far as it bears on the figures."""

import os
import platform
import sys

from saltwall_security.report.document import MachineEntry


def machine() -> MachineEntry:
    """This one."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    except (ValueError, OSError):
        memory = None
    return MachineEntry(
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=sys.version.split()[0],
        cpus=_cpus(),
        memory_gb=None if memory is None else round(memory, 1),
    )


def _cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1
