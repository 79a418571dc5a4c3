"""Suites that examine the scheduler class in a process of its own, without an engine."""

from saltwall_security.target import Target, Tenant

SUITES = ("scheduler", "collision")
SCHEDULER = "saltwall_engine.scheduler:scheduler_class"
NOBODY = "http://127.0.0.1:9/v1"
"""Nothing answers there, and nothing is asked."""


def target() -> Target:
    """The scheduler, and no deployment."""
    return Target(NOBODY, (Tenant("a"), Tenant("b")), model="demo", scheduler=SCHEDULER)
