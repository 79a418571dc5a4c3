"""Trials of what clients add to their requests: all at once, and one by one where that is refused.

A server that refuses one member of a bundle has not been asked about the others.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from saltwall_security.suites.isolation.bench import Bench, sending
from saltwall_security.suites.isolation.routes import ROUTES, Route
from saltwall_security.suites.isolation.smuggling import Smuggle, telling
from saltwall_security.suites.isolation.trial import Outcome, Trial, Way
from saltwall_security.target import Tenant


@dataclass(frozen=True)
class Disguise:
    """Who wears what, and where.

    Args:
        bench: its spy wears it, and knows its victim.
        said: how, in a word or two; empty for the usual way.
        floor: as in `Way`.
    """

    bench: Bench
    smuggle: Smuggle
    route: Route
    said: str = ""
    stream: bool = False
    floor: int | None = None

    def way(self) -> Way:
        """As a way."""
        bench, smuggle = self.bench, self.smuggle
        return Way(
            f"{self.said}{smuggle.way}",
            sending(bench.victim, partial(smuggle.victim, self.route, stream=self.stream)),
            sending(bench.spy, partial(smuggle.spy, self.route, stream=self.stream)),
            self.floor,
            brief=True,
            dressed=True,
        )

    def members(self) -> Sequence["Disguise"]:
        """Each of its members; none if it is one only."""
        return [replace(self, smuggle=each) for each in self.smuggle.members()]


def on_route(
    bench: Bench, route: Route, modes: Sequence[bool], floor: int | None
) -> list[Disguise]:
    """The most telling ones, every other one streamed, and on the next route the others.

    Every other two are the victim's, so that over several routes both tenants wear each of them.

    Args:
        modes: whether it streams there.
    """
    worn = []
    for number, pair in enumerate(_both(bench, telling), ROUTES.index(route)):
        who, smuggle, said = pair[number // 2 % 2]
        stream = modes[number % len(modes)]
        said += f"{'streamed' if stream else 'whole'}, "
        worn.append(Disguise(who, smuggle, route, said, stream, floor))
    return worn


def by_turns(bench: Bench, smuggles: Callable[[Tenant], Sequence[Smuggle]]) -> list[Disguise]:
    """Each once; the two tenants take turns."""
    worn = []
    for number, pair in enumerate(_both(bench, smuggles)):
        who, smuggle, said = pair[number % 2]
        floor = bench.floor if smuggle.on(bench.route) is bench.route else None
        worn.append(Disguise(who, smuggle, bench.route, said, floor=floor))
    return worn


def _both(
    bench: Bench, smuggles: Callable[[Tenant], Sequence[Smuggle]]
) -> Iterator[tuple[tuple[Bench, Smuggle, str], tuple[Bench, Smuggle, str]]]:
    """Each as the spy wears it, and as the victim does."""
    back = bench.swapped()
    pairs = zip(smuggles(bench.victim.tenant), smuggles(back.victim.tenant), strict=True)
    return (((bench, spies, ""), (back, victims, "swapped, ")) for spies, victims in pairs)


async def tried(bench: Bench, disguises: Sequence[Disguise]) -> list[Trial]:
    """Trials of all; in place of a bundle that is not taken as such, of its members."""
    kept: list[Trial] = []
    members: list[Disguise] = []
    made = await bench.trials([each.way() for each in disguises])
    for each, trial in zip(disguises, made, strict=True):
        refused = trial.outcome in (Outcome.REFUSED, Outcome.NOT_OFFERED)
        parts = each.members() if refused else ()
        members += parts
        kept += () if parts else (trial,)
    return [*kept, *await bench.trials([each.way() for each in members])]
