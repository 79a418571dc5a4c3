"""Every order of pool operations up to a depth, on a pool small enough to try them all.

States that behave alike are visited once: tenants are interchangeable (each operation is tried for
each), and so are blocks with the same standing. What the pool remembers beyond the model's state,
the heap of list heads, is part of what must be alike, so that its stale entries are tried too.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pool_twin import TENANTS, Twin
from quota_model import Terms

Operation = tuple[Any, ...]
"""A `Twin` method's name and arguments."""


@dataclass
class Scope:
    """What to try on a pool of so many blocks.

    Each start is the tenants' terms, and in which order they have filled the pool with idle blocks
    before (one letter a block); `menu` is the terms that each may be given on the way, and `takes`
    the numbers of blocks that are asked for at once.
    """

    total: int
    starts: Sequence[tuple[Sequence[Terms], str]]
    menu: Sequence[Terms] = ()
    takes: Sequence[int] = (1, 2)


@dataclass
class Tally:
    """What was tried."""

    depth: int = 0
    states: int = 0
    transitions: int = 0
    refusals: int = 0
    evictions: int = 0
    """Of another tenant's blocks."""
    complete: bool = True


def build(total: int, start: Sequence[Terms], fill: str) -> Twin:
    """A twin with these terms and these idle blocks."""
    who = TENANTS[: len(start)]
    twin = Twin(total, who)
    for tenant, terms in zip(who, start, strict=True):
        if terms != Terms():
            assert twin.set_terms(tenant, terms)
    for tenant in fill:
        assert twin.serve(tenant, 1)
    return twin


def state_of(twin: Twin) -> Any:
    """What tells a state from others, up to names of blocks and tenants."""
    model, queue = twin.model, twin.pool.free_block_queue
    heads = {account: stamp for stamp, _, account in queue._heads}
    stamps = {queue._stamps[twin.ids[name]] for name in model.idle}
    rank = {stamp: i for i, stamp in enumerate(sorted(stamps | set(heads.values())))}
    return tuple(
        sorted(
            (
                terms,
                tuple(
                    sorted(
                        (name in model.cached, model.refs[name]) for name in model.pinned(tenant)
                    )
                ),
                tuple(rank[queue._stamps[twin.ids[name]]] for name in model.idle_of(tenant)),
                rank.get(heads.get(twin.holders[tenant].account, -1), -1),
            )
            for tenant, terms in model.terms.items()
        )
    )


def operations(scope: Scope, twin: Twin) -> Iterator[Operation]:
    """What can be done next, one for each group of blocks with the same standing."""
    model = twin.model
    for tenant in model.terms:
        pinned = model.pinned(tenant)
        kinds = {(name in model.cached, model.refs[name]): name for name in reversed(pinned)}
        for blocks in scope.takes:
            yield "allocate", tenant, blocks
            yield "serve", tenant, blocks
        for (cached, refs), name in kinds.items():
            yield "release", [name]
            if not cached:
                yield "cache", name
            else:
                yield "uncache", name
                if refs == 1:
                    yield "hit", name
        if len(pinned) > 1:
            yield "release", pinned[::-1]
        for name in model.idle_of(tenant):
            if len(pinned) < model.terms[tenant].ceiling:
                yield "hit", name
            yield "uncache", name
        for terms in scope.menu:
            if terms != model.terms[tenant]:
                yield "set_terms", tenant, terms
        if len(model.held(tenant)) > model.terms[tenant].ceiling:
            yield "trim", tenant
    if not model.refs or not any(model.refs.values()):
        yield ("reset",)


def attempt(twin: Twin, operation: Operation, tally: Tally) -> bool:
    """Carries it out and checks all that must hold; whether the state may have changed."""
    name, *arguments = operation
    accounts = [holder.account for holder in twin.holders.values()]
    before = sum(account.evictions_suffered for account in accounts)
    done = getattr(twin, name)(*arguments) is not False
    tally.transitions += 1
    tally.refusals += not done
    tally.evictions += sum(account.evictions_suffered for account in accounts) - before
    if done:
        twin.check()
    return done


def explore(scope: Scope, depth: int, seconds: float = float("inf")) -> Tally:
    """Tries every order of operations up to a depth, breadth first.

    Raises:
        AssertionError: something did not hold; the path is in its notes.
    """
    deadline = time.monotonic() + seconds
    tally = Tally(depth=depth)
    seen: set[Any] = set()
    frontier: list[tuple[Twin, tuple[Operation, ...]]] = []
    for start in scope.starts:
        twin = build(scope.total, *start)
        key = state_of(twin)
        if key not in seen:
            seen.add(key)
            frontier.append((twin, (start,)))
    for level in range(depth):
        reached: list[tuple[Twin, tuple[Operation, ...]]] = []
        for parked, path in frontier:
            if time.monotonic() > deadline:
                tally.depth, tally.complete = level, False
                break
            operation: Operation = ("promises",)
            try:
                twin = parked.fork()
                promises(twin)
                fork = twin.fork()
                for operation in operations(scope, twin):
                    if attempt(fork, operation, tally):
                        key = state_of(fork)
                        if key not in seen:
                            seen.add(key)
                            if level + 1 < depth:
                                fork.park()
                                reached.append((fork, (*path, operation)))
                        fork = twin.fork()
            except AssertionError as error:
                error.add_note(f"{path}, then {operation}")
                raise
        frontier = reached
    tally.states = len(seen)
    return tally


def promises(twin: Twin) -> None:
    """Whatever a tenant is told that it may take, it can take, and no more."""
    for tenant in twin.holders:
        for hits in range(len(twin.model.idle_of(tenant)) + 1):
            twin.check_room(tenant, hits)
