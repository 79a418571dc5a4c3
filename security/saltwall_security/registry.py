"""Every suite by name, in the order in which they run."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

from saltwall_security.errors import AuditError
from saltwall_security.suite import Suite

MODULES: Final[Mapping[str, str]] = {
    "isolation": "saltwall_security.suites.isolation",
    "ticket": "saltwall_security.suites.ticket",
    "keys": "saltwall_security.suites.keys",
    "quota": "saltwall_security.suites.quota",
    "rotation": "saltwall_security.suites.rotation",
    "collision": "saltwall_security.suites.collision",
    "scheduler": "saltwall_security.suites.scheduler",
    "timing": "saltwall_security.suites.timing",
    "recovery": "saltwall_security.suites.recovery",
    "eviction": "saltwall_security.suites.eviction",
    "log": "saltwall_security.suites.log",
    "secrecy": "saltwall_security.suites.secrecy",
    "restart": "saltwall_security.suites.restart",
}
"""Each module has a `SUITE`. Secrecy searches what those before it have left in logs, and restart
leaves another process than others were given."""


def load(names: Sequence[str] = ()) -> list[Suite]:
    """The suites of these names, or all.

    Raises:
        AuditError: there is none of that name.
    """
    unknown = [name for name in names if name not in MODULES]
    if unknown:
        raise AuditError(f"no suite is called {unknown[0]!r}: choose from {', '.join(MODULES)}")
    chosen = [name for name in MODULES if not names or name in names]
    return [import_module(MODULES[name]).SUITE for name in chosen]
