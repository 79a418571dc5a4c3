"""Scopes that framing, trimming, folding or truncating would take for one another."""

import asyncio
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from saltwall_security.check import Check, Verdict, judge
from saltwall_security.client import Answer, Client
from saltwall_security.suites.isolation.bench import ADVICE, AT_ONCE, RETRIES, Bench
from saltwall_security.suites.isolation.smuggling import TICKET_LIKE
from saltwall_security.suites.isolation.trial import cached, counted, sent
from saltwall_security.target import Target

ABSENT: Final = object()
OK, BUSY = 200, 429
SHARE = 0.6
"""The most of the time left that the visits may take."""
BACK = 8
"""How many scopes the tenants visit with their roles exchanged."""
WITHIN = "Parts of one tenant's own cache stay apart, however its scopes are spelled"
ACROSS = "No scope that a tenant writes reaches another tenant's cache"
SWAPPED = "Nor with the roles exchanged"
SAME_OWNER = "a scope hit what another scope of the same tenant had cached"
STRANGER = "the stranger hit what the owner had cached"


@dataclass(frozen=True)
class Scope:
    """A value of `cache_salt`.

    Args:
        alike: a server may take those with the same word here for one.
        stream: its requests are streamed.
    """

    name: str
    value: Any = field(repr=False)
    alike: str = ""
    stream: bool = False


def colliding(target: Target) -> Sequence[Scope]:
    """The scopes, each of which is to be a part of its own, the most telling first."""
    victim, model = target.tenants[0], target.model or "model"
    accented = "\u00e9t\u00e9"
    scopes = [
        Scope("absent", ABSENT, "none"),
        Scope("null", None, "none"),
        Scope("empty", "", "none"),
        Scope("a", "a"),
        Scope("bc", "bc"),
        Scope("a.bc", "a.bc"),
        Scope("ab.c", "ab.c"),
        Scope("abc", "abc"),
        Scope("one that is streamed", "streamed-1", stream=True),
        Scope("another that is streamed", "streamed-2", stream=True),
        Scope("the model's name", model),
        Scope("the model's name and a", f"{model}a"),
        Scope("the tenant's name", victim.name),
        Scope("the tenant's name, colon, a", f"{victim.name}:a"),
        Scope("the tenant's name, slash, a", f"{victim.name}/a"),
        Scope("the tenant's id", victim.id or f"id-of-{victim.name}"),
        Scope("a NUL", "a\x00"),
        Scope("NUL", "\x00"),
        Scope("a NUL bc", "a\x00bc"),
        Scope("a NUL bd", "a\x00bd"),
        Scope("JSON that closes the string", 'a","bc'),
        Scope("upper case", "A"),
        Scope("a trailing space", "a "),
        Scope("a newline", "a\n"),
        Scope("255 bytes and x", "x" * 256),
        Scope("255 bytes and y", "x" * 255 + "y"),
        Scope("257 bytes", "x" * 257),
        Scope("NFC", unicodedata.normalize("NFC", accented)),
        Scope("NFD", unicodedata.normalize("NFD", accented)),
        Scope("full width a", "\uff41"),
        Scope("Cyrillic a", "\u0430"),
        Scope("zero-width a", "a\u200b"),
        Scope("half of a surrogate pair", "\ud800"),
        Scope("text null", "null"),
        Scope("text 1", "1", "one"),
        Scope("number 1", 1, "one"),
        Scope("text true", "true", "true"),
        Scope("true", True, "true"),
        Scope("like a ticket", TICKET_LIKE),
        Scope("64 hex digits", "0123456789abcdef" * 4),
    ]
    if any(tenant.cache_salt is not None for tenant in target.tenants):
        # Without its own salt a tenant is nobody there, and hits whatever nobody has cached.
        scopes = [each for each in scopes if each.value is ABSENT or _is_text(each.value)]
    return _different(scopes)


def _different(scopes: Sequence[Scope]) -> Sequence[Scope]:
    """Each value once: tenants and models may be called like any of them."""
    kept: dict[tuple[type, Any], Scope] = {}
    for scope in scopes:
        key = (type(scope.value), scope.value)
        if key not in kept or scope.alike:
            kept[key] = scope
    return list(kept.values())


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


@dataclass
class Visit:
    """A tenant's requests in one scope: cached tokens at first; the owner's again at the end."""

    first: int | None = None
    again: int | None = None
    status: int | None = None


async def check_scopes(bench: Bench) -> Sequence[Check]:
    """One prompt goes through all scopes in turn: a scope that is not new would hit at once.

    So n requests find any two that are taken for one, and the other tenant's n find any that it
    shares with the first; then a few the other way round.
    """
    scopes = colliding(bench.audit.target)
    tour = await _told(bench, scopes)
    back = await _told(bench.swapped(), list(_distinct(scopes))[:BACK])
    made = [_judged("scopes-within", WITHIN, tour, tour.merged, SAME_OWNER, [tour.owner])]
    for name, claim, each in (("scopes-across", ACROSS, tour), ("scopes-swapped", SWAPPED, back)):
        visits = [each.owner, each.stranger]
        made.append(_judged(name, claim, each, each.crossed, STRANGER, visits))
    return made


async def _told(bench: Bench, scopes: Sequence[Scope]) -> "Tour":
    """A tour, made again where others' load has evicted what there was to see."""
    stop_at = bench.audit.left_s * (1 - SHARE)
    for _ in range(1 + RETRIES):
        tour = await _toured(bench, scopes, stop_at)
        late = not tour.whole or bench.audit.left_s < stop_at
        if tour.told or tour.merged or tour.crossed or late:
            break
    return tour


@dataclass(frozen=True)
class Tour:
    """What both tenants saw in the scopes, by name."""

    bench: Bench
    scopes: Sequence[Scope]
    owner: Mapping[str, Visit]
    stranger: Mapping[str, Visit]

    @property
    def whole(self) -> bool:
        """Whether there was time for all of it."""
        return len(self.owner) == len(self.stranger) == len(self.scopes)

    @property
    def repeats(self) -> Sequence[int | None]:
        """Cached tokens of the owner's second visits."""
        return [visit.again for visit in self.owner.values() if visit.status == OK]

    @property
    def hits(self) -> Sequence[int]:
        """Those that hit."""
        return [hit for hit in self.repeats if hit is not None and hit > self.bench.floor]

    @property
    def told(self) -> bool:
        """Whether everything that was cached was still there in the end."""
        return self.whole and bool(self.hits) and len(self.hits) == len(self.repeats)

    def refused(self, name: str, visit: Visit) -> bool:
        """Whether a scope is taken from nobody; from the stranger alone, nothing was tried."""
        status = visit.status
        nobodys = self.owner[name].status != OK
        return nobodys and status is not None and status != BUSY and 400 <= status < 500

    @property
    def merged(self) -> Sequence[str]:
        """The scopes in which the owner hit what it had sent in another one."""
        return [s.name for s in _distinct(self.scopes) if self.hit(self.owner.get(s.name))]

    @property
    def crossed(self) -> Sequence[str]:
        """Those in which the stranger hit.

        Where the owner's own are taken for one, the stranger's are too: that is no stranger's.
        """
        own = {s.name for s in self.scopes[1:] if self.hit(self.owner.get(s.name))}
        distinct = [s.name for s in _distinct(self.scopes) if s.name not in own]
        return [name for name in distinct if self.hit(self.stranger.get(name))]

    def hit(self, visit: Visit | None) -> bool:
        """Whether a first visit saw more than one of an unseen prompt does."""
        return visit is not None and visit.first is not None and visit.first > self.bench.floor


async def _toured(bench: Bench, scopes: Sequence[Scope], stop_at: float) -> Tour:
    prompt = bench.audit.words(2 * bench.words)
    owner: dict[str, Visit] = {}
    stranger: dict[str, Visit] = {}
    for client, visits in ((bench.victim, owner), (bench.spy, stranger)):
        for scope in scopes:
            if bench.audit.left_s < stop_at:
                break
            visits[scope.name] = await _visit(bench, client, prompt, scope)
    taken = [scope for scope in scopes if owner.get(scope.name, Visit()).status == OK]
    for start in range(0, len(taken), AT_ONCE):
        group = taken[start : start + AT_ONCE]
        repeats = (_ask(bench, bench.victim, prompt, scope) for scope in group)
        for scope, answer in zip(group, await asyncio.gather(*repeats), strict=True):
            owner[scope.name].again = cached(answer)
    return Tour(bench, scopes, owner, stranger)


async def _visit(bench: Bench, client: Client, prompt: str, scope: Scope) -> Visit:
    answer = await _ask(bench, client, prompt, scope)
    if answer is None:
        return Visit()
    if answer.ok and not counted(answer):
        return Visit()
    return Visit(first=(cached(answer) or 0) if answer.ok else None, status=answer.status)


async def _ask(bench: Bench, client: Client, prompt: str, scope: Scope) -> Answer | None:
    value = scope.value
    if isinstance(value, str) and value:
        value = bench.salt(client, value)
    fields = {} if value is ABSENT else {"cache_salt": value}
    return await sent(
        lambda text: bench.route.ask(client, text, fields, stream=scope.stream), prompt
    )


def _distinct(scopes: Sequence[Scope]) -> Iterator[Scope]:
    """The first of each kind that a server may take for one."""
    met = set[str]()
    for scope in scopes:
        if not scope.alike or scope.alike not in met:
            yield scope
        met.add(scope.alike)


def _judged(
    name: str,
    claim: str,
    tour: Tour,
    hit: Sequence[str],
    told: str,
    visited: Sequence[Mapping[str, Visit]],
) -> Check:
    visits = [visit for each in visited for visit in each.values()]
    taken = sum(visit.status == OK for visit in visits)
    refused = sum(tour.refused(*visit) for each in visited for visit in each.items())
    odd = len(visits) - taken - refused
    missed = len(tour.repeats) - len(tour.hits)
    verdict = judge(bool(hit), tour.told and not odd)
    seen = f"Of {len(tour.scopes)} scopes, {taken} visits were taken and {refused} refused; "
    seen += f"in {len(hit)} scopes {told}" + (f" ({', '.join(hit[:6])})" if hit else "")
    if missed or odd or not tour.whole:
        seen += f"; {missed} repeats did not hit, {odd} were not answered, or not as the owner's"
        seen += "" if tour.whole else ", and time ran out"
    return Check(
        f"isolation/{name}",
        "G1",
        verdict,
        claim,
        f"{seen}.",
        {
            "scopes": len(tour.scopes),
            "visits_taken": taken,
            "visits_refused": refused,
            "collisions": len(hit),
            "repeats_missed": missed,
        },
        f"The owner's second visits hit {min(tour.hits)} to {max(tour.hits)} tokens."
        if tour.hits
        else None,
        table=[_row(scope, tour) for scope in tour.scopes],
        advice="" if verdict is not Verdict.FAILED else ADVICE,
    )


def _row(scope: Scope, tour: Tour) -> Mapping[str, float | int | str | None]:
    theirs = tour.owner.get(scope.name, Visit())
    mine = tour.stranger.get(scope.name, Visit())
    return {
        "scope": scope.name,
        "owner_status": theirs.status,
        "owner_first_tokens": theirs.first,
        "owner_again_tokens": theirs.again,
        "stranger_status": mine.status,
        "stranger_first_tokens": mine.first,
    }
