"""Every attack once on Saltwall's scheduler and on stock vLLM's; vLLM is imported once."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from saltwall_security.bench.attacks.catalogue import CATALOGUE
from saltwall_security.bench.process import Benches, BenchFailed, Examination
from saltwall_security.bench.worker import STOCK
from saltwall_security.check import Check
from saltwall_security.collision import weak
from saltwall_security.suite import Audit
from saltwall_security.suites.collision.crafting import ownership
from saltwall_security.suites.collision.hasher import hasher, time_algorithms
from saltwall_security.suites.collision.operators import speed
from saltwall_security.target import Target, Tenant

SCHEDULERS = {
    "saltwall": "saltwall_engine.scheduler:scheduler_class",
    "stock": STOCK,
    "absent": "saltwall_engine.nowhere:scheduler_class",
}
_TASK_S = 120.0


@dataclass(frozen=True)
class Examined:
    """What was seen: sightings by scheduler, attack and mode, and the collision suite's checks."""

    sightings: Mapping[tuple[str, str, bool], Mapping[str, Any]]
    checks: Mapping[str, Check]
    absent: str


@pytest.fixture(scope="session")
def examined() -> Examined:
    """The examination, once for all tests."""
    return asyncio.run(_examine())


async def _examine() -> Examined:
    target = Target("http://127.0.0.1:9/v1", (Tenant("a"), Tenant("b")))
    audit = Audit(target, "tests", 60.0, lambda _: None)
    crafted = [pair for pair in (weak.xxhash(audit.rng),) if pair is not None]
    async with Benches(SCHEDULERS, "tests") as benches:
        try:
            await benches["absent"].version()
        except BenchFailed as failure:
            absent = str(failure)
        saltwall, stock = await asyncio.gather(
            *(_attack(benches[name]) for name in ("saltwall", "stock"))
        )
        checks = {
            "hasher": await hasher(audit, benches["saltwall"]),
            "stock hasher": await hasher(audit, benches["stock"]),
            "ownership": await ownership(crafted, benches["stock"], benches["saltwall"]),
            "stock ownership": await ownership(crafted, benches["stock"], benches["stock"]),
            "absent": await hasher(audit, benches["absent"]),
            "speed": speed(await time_algorithms(benches["stock"]), crafted),
        }
    sightings = {("saltwall", *run): sighting for run, sighting in saltwall.items()}
    sightings |= {("stock", *run): sighting for run, sighting in stock.items()}
    return Examined(sightings, checks, absent)


async def _attack(examination: Examination) -> dict[tuple[str, bool], Mapping[str, Any]]:
    """By attack and mode, what was seen."""
    return {
        (name, asynchronous): await examination.ask(
            "attack", _TASK_S, name=name, asynchronous=asynchronous, seed="tests"
        )
        for name in CATALOGUE
        for asynchronous in (False, True)
    }
