"""One run of the auditor: suites in turn, each with its part of the time."""

import asyncio
import secrets
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import httpx

from saltwall_security.check import Check, Verdict, worst
from saltwall_security.client import Client
from saltwall_security.errors import AuditError, Unreachable
from saltwall_security.suite import SLOW, Audit, Suite
from saltwall_security.target import Target

PREPARES_S = 60.0
"""For a look at whether a tenant is let in."""
MOST_NAMED = 5
"""Models of a list that may be very long."""
INTERRUPTED = "the run was interrupted"
Say = Callable[[float, float, str], None]
"""Takes the part that is done (0 to 1), the seconds left, and what is happening."""


@dataclass(frozen=True)
class SuiteResult:
    """What one suite found, and how long it took (seconds)."""

    suite: Suite
    checks: Sequence[Check]
    seconds: float

    @property
    def verdict(self) -> Verdict:
        """Over the checks that decide about a guarantee."""
        return worst(check.verdict for check in self.checks if check.guarantee is not None)


def new_seed() -> str:
    """A seed for a run that was given none."""
    return secrets.token_hex(8)


async def prepare(target: Target) -> Target:
    """The target with its model, after a look at whether every tenant is let in.

    Raises:
        AuditError: what is wrong with the target or the keys, and what to do.
    """
    if len(target.tenants) < 2:
        raise AuditError("two tenants are needed, one to spy on the other: give two keys")
    for one, other in combinations(target.tenants, 2):
        given = one.key, one.cache_salt
        if any(given) and given == (other.key, other.cache_salt):
            raise AuditError(
                f"{one.name} and {other.name} have the same key: give those of two tenants"
            )
    for tenant in target.tenants:
        client = Client(target, tenant)
        try:
            async with asyncio.timeout(PREPARES_S):
                answer = await client.send("GET", "/models")
                models = await client.models()
        except (httpx.HTTPError, TimeoutError) as error:
            raise Unreachable(
                f"{target.url} does not answer ({type(error).__name__}): is it up, and is that "
                'the base of its OpenAI routes, ending in "/v1"?'
            ) from None
        finally:
            await client.close()
        if answer.status in (401, 403):
            raise AuditError(f"the key of {tenant.name} is refused: {answer.error.get('message')}")
        if not models:
            raise Unreachable(f"{target.url} lists no models to {tenant.name} ({answer.status})")
        if target.model is None:
            target = target.with_model(models[0])
        if target.model not in models:
            raise AuditError(
                f"{tenant.name} may not use the model {target.model!r}, but {_some(models)}"
            )
    return target


def _some(models: Sequence[str]) -> str:
    more = len(models) - MOST_NAMED
    named = ", ".join(map(repr, models[:MOST_NAMED]))
    return f"{named} and {more} more" if more > 0 else named


async def run(
    target: Target, suites: Sequence[Suite], budget_s: float, seed: str, say: Say
) -> list[SuiteResult]:
    """Runs the suites that there is access for; the others say `NOT_TESTED`.

    Where it is cancelled it ends early, without an exception: each suite that has not ended says
    `INCONCLUSIVE`, and the task's `cancelling()` tells.

    Time that a suite does not need goes to those after it, as far as the budget has any left. One
    that takes longer takes nothing from them: too few samples would leave them in doubt.
    """
    access = target.access()
    began = time.monotonic()
    runs = [suite for suite in suites if suite.needs <= access]
    shares = sum(suite.share for suite in runs)
    given = {s.name: max(s.least_s, budget_s * s.share / shares) for s in runs}
    spare = budget_s - sum(given.values())
    results = []
    for suite in suites:
        if suite.name not in given:
            missing = ", ".join(sorted(suite.needs - access))
            results.append(SuiteResult(suite, [_not_tested(suite, missing)], 0.0))
            continue
        bonus = max(0.0, spare) * suite.share / shares
        seconds = given.pop(suite.name) + bonus
        shares -= suite.share
        until, later = time.monotonic() + seconds, sum(given.values())

        def tell(
            line: str, name: str = suite.name, until: float = until, later: float = later
        ) -> None:
            now = time.monotonic()
            left = max(0.0, until - now) + later
            say((now - began) / (now - began + left or 1.0), left, f"{name}: {line}")

        if _cancelled():
            results.append(SuiteResult(suite, _stopped(suite, INTERRUPTED), 0.0))
            continue
        tell(suite.title)
        result = await _run_one(suite, Audit(target, f"{seed}/{suite.name}", seconds, tell))
        results.append(result)
        spare += max(0.0, seconds - result.seconds) - bonus
    return results


async def _run_one(suite: Suite, audit: Audit) -> SuiteResult:
    began = time.monotonic()
    checks: list[Check] = []
    most = SLOW * audit.seconds + suite.patience_s
    try:
        async with asyncio.timeout(most) as limit, audit:
            async for check in suite.run(audit):
                checks.append(check)
                audit.say(f"{check.verdict}: {check.id}")
    except asyncio.CancelledError:
        checks += _stopped(suite, INTERRUPTED)
    except Exception as error:  # one suite's trouble must not hide what the others find
        late = f"it had not ended after {most:.0f} s: does the target still answer?"
        checks += _stopped(suite, late if limit.expired() else _reason(error))
    return SuiteResult(suite, checks, time.monotonic() - began)


def _cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _reason(error: Exception) -> str:
    """What an error says, if it is ours; otherwise its kind and place, for it may quote secrets."""
    if isinstance(error, AuditError):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {Path(place.filename).name}, line {place.lineno}"


def _stopped(suite: Suite, said: str) -> list[Check]:
    """Doubt about each guarantee of the suite: nobody knows which checks were not made."""
    return [
        Check(
            f"{suite.name}/stopped/{guarantee}",
            guarantee,
            Verdict.INCONCLUSIVE,
            f"{suite.title}: all its checks are made",
            f"The suite stopped early: {said}",
        )
        for guarantee in suite.guarantees
    ]


def _not_tested(suite: Suite, missing: str) -> Check:
    return Check(
        f"{suite.name}/access",
        suite.guarantees[0] if suite.guarantees else None,
        Verdict.NOT_TESTED,
        suite.title,
        f"Not run: it needs access to {missing}.",
    )
