"""Scopes that framing, trimming, folding or truncating would take for one another."""

import asyncio
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from saltwall_security.check import Check, Verdict, judge
from saltwall_security.client import Answer, Client
from saltwall_security.suites.isolation.bench import ADVICE, AT_ONCE, Bench
from saltwall_security.suites.isolation.smuggling import TICKET_LIKE
from saltwall_security.suites.isolation.trial import cached, counted, sent
from saltwall_security.target import Target

ABSENT: Final = object()
OK = 200
SHARE = 0.6
"""The most of the time left that the visits may take."""


@dataclass(frozen=True)
class Scope:
    """A value of `cache_salt`.

    Args:
        alike: a server may take those with the same word here for one.
    """

    name: str
    value: Any = field(repr=False)
    alike: str = ""


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
        Scope("the model's name", model),
        Scope("the model's name and a", f"{model}a"),
        Scope("the tenant's name", victim.name),
        Scope("the tenant's name, colon, a", f"{victim.name}:a"),
        Scope("the tenant's name, slash, a", f"{victim.name}/a"),
        Scope("the tenant's id", victim.id or f"id-of-{victim.name}"),
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
        return [each for each in scopes if each.value is ABSENT or _is_text(each.value)]
    return scopes


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
    shares with the first.
    """
    scopes, prompt = colliding(bench.audit.target), bench.audit.words(2 * bench.words)
    stop_at = bench.audit.left_s * (1 - SHARE)
    made: dict[Client, dict[str, Visit]] = {bench.victim: {}, bench.spy: {}}

    async def first(client: Client) -> None:
        for scope in scopes:
            if bench.audit.left_s < stop_at:
                break
            made[client][scope.name] = await _visit(bench, client, prompt, scope)

    await first(bench.victim)
    await first(bench.spy)
    taken = [s for s in scopes if made[bench.victim].get(s.name, Visit()).status == OK]
    for start in range(0, len(taken), AT_ONCE):
        group = taken[start : start + AT_ONCE]
        repeats = (_ask(bench, bench.victim, prompt, scope) for scope in group)
        for scope, answer in zip(group, await asyncio.gather(*repeats), strict=True):
            made[bench.victim][scope.name].again = cached(answer)
    return [_within(bench, scopes, made), _across(bench, scopes, made)]


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
    return await sent(lambda text: bench.route.ask(client, text, fields), prompt)


def _within(
    bench: Bench, scopes: Sequence[Scope], made: Mapping[Client, Mapping[str, Visit]]
) -> Check:
    hit, met = [], set[str]()
    for scope in scopes:
        visit = made[bench.victim].get(scope.name)
        if visit is None or visit.first is None:
            continue
        if visit.first > bench.floor and not (scope.alike and scope.alike in met):
            hit.append(scope.name)
        met.add(scope.alike)
    return _judged(
        "scopes-within",
        "Parts of one tenant's own cache stay apart, however its scopes are spelled",
        bench,
        scopes,
        made,
        hit,
        "a scope hit what another scope of the same tenant had cached",
        [bench.victim],
    )


def _across(
    bench: Bench, scopes: Sequence[Scope], made: Mapping[Client, Mapping[str, Visit]]
) -> Check:
    hit = []
    for scope in scopes:
        theirs, mine = made[bench.victim].get(scope.name), made[bench.spy].get(scope.name)
        if theirs is None or mine is None or mine.first is None or theirs.first is None:
            continue
        # Where the victim's own scopes are taken for one, the spy's are too: that is no stranger's.
        if mine.first > bench.floor and (theirs.first <= bench.floor or scope is scopes[0]):
            hit.append(scope.name)
    return _judged(
        "scopes-across",
        "No scope that a tenant writes reaches another tenant's cache",
        bench,
        scopes,
        made,
        hit,
        "the stranger hit what the owner had cached",
        [bench.victim, bench.spy],
    )


def _judged(
    name: str,
    claim: str,
    bench: Bench,
    scopes: Sequence[Scope],
    made: Mapping[Client, Mapping[str, Visit]],
    hit: Sequence[str],
    told: str,
    clients: Sequence[Client],
) -> Check:
    visits = [visit for client in clients for visit in made[client].values()]
    taken = [visit for visit in visits if visit.status == OK]
    refused = sum(visit.status is not None and 400 <= visit.status < 500 for visit in visits)
    odd = len(visits) - len(taken) - refused
    whole = len(visits) == len(scopes) * len(clients)
    repeats = [visit.again for visit in made[bench.victim].values() if visit.status == OK]
    hits = [again for again in repeats if again is not None and again > bench.floor]
    missed = len(repeats) - len(hits)
    verdict = judge(bool(hit), whole and bool(hits) and not missed and not odd)
    seen = f"Of {len(scopes)} scopes, {len(taken)} visits were taken and {refused} refused; "
    seen += f"in {len(hit)} scopes {told}" + (f" ({', '.join(hit[:6])})" if hit else "")
    if missed or odd or not whole:
        seen += f"; {missed} repeats did not hit, {odd} were not answered"
        seen += "" if whole else ", and time ran out"
    return Check(
        f"isolation/{name}",
        "G1",
        verdict,
        claim,
        f"{seen}.",
        {
            "scopes": len(scopes),
            "visits_taken": len(taken),
            "visits_refused": refused,
            "collisions": len(hit),
            "repeats_missed": missed,
        },
        f"The owner's second visits hit {min(hits)} to {max(hits)} tokens." if hits else None,
        table=[_row(scope, bench, made) for scope in scopes],
        advice="" if verdict is not Verdict.FAILED else ADVICE,
    )


def _row(
    scope: Scope, bench: Bench, made: Mapping[Client, Mapping[str, Visit]]
) -> Mapping[str, float | int | str | None]:
    theirs = made[bench.victim].get(scope.name, Visit())
    mine = made[bench.spy].get(scope.name, Visit())
    return {
        "scope": scope.name,
        "owner_status": theirs.status,
        "owner_first_tokens": theirs.first,
        "owner_again_tokens": theirs.again,
        "stranger_status": mine.status,
        "stranger_first_tokens": mine.first,
    }
