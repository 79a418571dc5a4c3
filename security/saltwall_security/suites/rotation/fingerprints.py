"""Which bytes of a process are the KV cache of a prompt, found by what changed when it was sent.

Pages that changed while a canary prompt was computed, and not while others were afterwards, are its
keys and values; the activations beside them are overwritten by the next request. From some of these
pages a window of bytes is kept that is nowhere else in memory.
"""

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from saltwall_security.suites.rotation.memory import PAGE, WINDOW, Memory, Place, Snapshot

MOST = 256
SAMPLED = 2048
LEAST_VALUES = 24
"""Different bytes that a window must have, to be no pattern that memory is full of."""


@dataclass(frozen=True)
class Fingerprint:
    """Bytes of one prompt's keys and values, and where they were."""

    window: bytes
    place: Place


@dataclass(frozen=True)
class Traces:
    """What is left of some fingerprints: where they were, and anywhere at all."""

    same: int
    zero: int
    other: int
    anywhere: int


def pages(snapshots: Sequence[Snapshot], at: int) -> set[Place]:
    """Pages that changed from snapshot `at - 1` to `at`, and not from there to the last.

    Only those between two such pages: at the ends there may be something of others.
    """
    found = snapshots[at - 1].changed(snapshots[at])
    for earlier, later in zip(snapshots[at:], snapshots[at + 1 :], strict=False):
        found -= earlier.changed(later)
    return {page for page in found if {_beside(page, -PAGE), _beside(page, PAGE)} <= found}


@dataclass(frozen=True)
class Located:
    """Pages of two prompts: those in the KV cache, and those of the first elsewhere."""

    mine: Sequence[Place]
    others: Sequence[Place]
    elsewhere: Sequence[Place]


def locate(
    memory: Memory, mine: Collection[Place], others: Collection[Place], rng: random.Random
) -> Located:
    """The KV cache is the mapping in which both prompts have left most.

    What is elsewhere are activations, in memory that was given back and not used again so far.
    """
    found = [_some(pages_, rng, SAMPLED) for pages_ in (mine, others)]
    mappings = memory.mappings({*found[0], *found[1]})
    counts = [Counter(mappings[place] for place in each) for each in found]
    shared = counts[0] & counts[1]
    if not shared:
        return Located([], [], found[0])
    cache = shared.most_common(1)[0][0]
    return Located(
        [place for place in found[0] if mappings[place] == cache],
        [place for place in found[1] if mappings[place] == cache],
        [place for place in found[0] if mappings[place] != cache],
    )


def fingerprints(memory: Memory, found: Sequence[Place]) -> list[Fingerprint]:
    """A window of each of some pages."""
    made: list[Fingerprint] = []
    for place in found[:MOST]:
        made += _window(memory.read(place, PAGE), place)
    return made


def unique(memory: Memory, *groups: Sequence[Fingerprint]) -> list[list[Fingerprint]]:
    """Of each group, those whose window is nowhere else; one search for all."""
    places = memory.find({each.window for group in groups for each in group})
    return [[each for each in group if places[each.window] == [each.place]] for group in groups]


def traces(memory: Memory, *groups: Sequence[Fingerprint]) -> list[Traces]:
    """Looks at their places, and for them in all of the memory; one search for all."""
    places = memory.find({each.window for group in groups for each in group})
    return [_traces(memory, group, places) for group in groups]


def _traces(
    memory: Memory, group: Sequence[Fingerprint], places: Mapping[bytes, Sequence[Place]]
) -> Traces:
    same = zero = other = 0
    for each in group:
        now = memory.read(each.place, WINDOW)
        same += now == each.window
        zero += now == bytes(WINDOW)
        other += now not in (each.window, bytes(WINDOW))
    return Traces(same, zero, other, sum(bool(places[each.window]) for each in group))


def _beside(place: Place, by: int) -> Place:
    return Place(place.pid, place.address + by)


def _some(found: Collection[Place], rng: random.Random, most: int) -> list[Place]:
    ordered = sorted(found, key=lambda place: (place.pid, place.address))
    return rng.sample(ordered, min(most, len(ordered)))


def _window(page: bytes, place: Place) -> list[Fingerprint]:
    for at in range(0, len(page) - WINDOW + 1, WINDOW):
        window = page[at : at + WINDOW]
        if len(set(window)) >= LEAST_VALUES:
            return [Fingerprint(window, Place(place.pid, place.address + at))]
    return []
