"""G1: what one tenant has cached is not served to another, on any route, dressed up in any way.

A victim sends a prompt that nobody has sent, then a spy sends it: its cached tokens must be no more
than those of an unseen prompt. What there was to see is shown by both repeating it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from saltwall_security.check import Check, Verdict, not_made
from saltwall_security.client import Answer, Client
from saltwall_security.suite import Audit, Suite
from saltwall_security.suites.isolation.bench import Bench, check, levelled, sending, set_up
from saltwall_security.suites.isolation.disguise import by_turns, on_route, tried
from saltwall_security.suites.isolation.further import CLAIM, check_further
from saltwall_security.suites.isolation.later import Early
from saltwall_security.suites.isolation.owner_check import owner_check, stopped_hits
from saltwall_security.suites.isolation.routes import CHAT_ROUTE, PLAIN_ROUTE, ROUTES, Route
from saltwall_security.suites.isolation.scopes import ACROSS, SWAPPED, WITHIN, check_scopes
from saltwall_security.suites.isolation.smuggling import body_fields, doubled, request_headers
from saltwall_security.suites.isolation.trial import HIDDEN, Outcome, Trial, Way

CHECKS: Mapping[str, str] = {
    "known-salt": "Knowing what another tenant writes into cache_salt does not open its cache",
    **{route.name: f"No stranger's request hits on the route {route.name}" for route in ROUTES},
    "further": CLAIM,
    "choices": "Nor where one request asks for several choices",
    "scopes-within": WITHIN,
    "scopes-across": ACROSS,
    "scopes-swapped": SWAPPED,
    "fields": "No field of a request passes for another tenant, or opens its cache",
    "headers": "Nor does any header",
    "doubled": "Nor does a field or a header that comes twice",
    "later": "Nor does a stranger's request hit some time after the owner's",
    "adapters": "An adapter whose name is somebody's salt shares nothing with it",
}
SHARED_SCOPE = "the-same-scope"
ABSENT = ("status 404", "status 405")
"""What a route that is not there says, streamed or not."""
UNTOLD = (
    "Not to be told from cached tokens, as {why}. Let the server report them (vLLM: "
    "--enable-prompt-tokens-details), or see what the suite timing measures."
)


async def run(audit: Audit) -> AsyncIterator[Check]:
    """Yields one check a route and a kind of disguise."""
    bench = await set_up(audit)
    if isinstance(bench, str):
        why = UNTOLD.format(why=bench)
        for each in not_made("isolation", "G1", CHECKS, why, Verdict.INCONCLUSIVE):
            yield each
        return
    before = await stopped_hits(audit.target)
    early = await Early.warmed(bench)
    for name, part in PARTS.items():
        audit.say(name)
        for found in await part(bench):
            yield found
    audit.say("what was cached some time ago")
    yield _check("later", await early.trials())
    yield owner_check(before, await stopped_hits(audit.target))


async def _known_salt(bench: Bench) -> Sequence[Check]:
    """The attack on servers where the caller writes the salt: it is no secret of the platform's."""
    salt = bench.victim.tenant.cache_salt or SHARED_SCOPE
    ask = _with(bench.route, {"cache_salt": salt})
    way = Way(
        "the victim's cache_salt",
        sending(bench.victim, ask),
        sending(bench.spy, ask),
        dressed=True,
    )
    return [_check("known-salt", await bench.trials([way]))]


async def _routes(bench: Bench) -> Sequence[Check]:
    return [await _route(bench, route) for route in ROUTES]


async def _route(bench: Bench, route: Route) -> Check:
    """Whole answers and streams, in a scope and in none; the first that is served shows the rest.

    What a template adds shows in it, and in no other way is there more of it.
    """
    modes, made = ([False, True] if route.streams else [False]), list[Trial]()
    while modes:
        made += await bench.trials([_plain(bench, route, None, stream=modes[0])])
        if made[-1].outcome is not Outcome.NOT_OFFERED:
            break
        modes = [] if made[-1].why in ABSENT else modes[1:]
    if not modes:
        return _check(route.name, made)
    floor = made[-1].floor
    more = [_plain(bench, route, SHARED_SCOPE, stream=modes[0])]
    more += [
        _plain(bench, route, scope, stream=stream)
        for stream in modes[1:]
        for scope in (None, SHARED_SCOPE)
    ]
    more += [replace(way, brief=True) for way in _swapped(bench, route, modes)]
    made += await bench.trials([replace(way, floor=floor) for way in more])
    made += await tried(bench, on_route(bench, route, modes, floor))
    return _check(route.name, levelled(made))


def _plain(bench: Bench, route: Route, scope: str | None, *, stream: bool) -> Way:
    said = f"{'streamed' if stream else 'whole'}, {'in a scope' if scope else 'no scope'}"
    ask = _scoped(bench, route, scope, stream=stream)
    return Way(said, sending(bench.victim, ask), sending(bench.spy, ask))


def _swapped(bench: Bench, route: Route, modes: Sequence[bool]) -> list[Way]:
    """The victim spies, too; and once the prompt is a long one, and once a system's."""
    back = bench.swapped()
    ways = [
        _plain(back, route, None, stream=modes[0]),
        _plain(back, route, SHARED_SCOPE, stream=modes[-1]),
    ]
    ways = [replace(way, name=f"swapped, {way.name}") for way in ways]
    if route is bench.route:
        long = _plain(bench, route, None, stream=modes[0])
        ways.append(replace(long, name="a long prompt", prompt=bench.long))
    if (system := route.system) is not None:

        def ask(client: Client, prompt: str) -> Awaitable[Answer]:
            return route.ask(client, prompt, system(prompt), stream=modes[-1])

        both = sending(bench.victim, ask), sending(bench.spy, ask)
        ways.append(Way("a system's prompt", *both))
    return ways


async def _choices(bench: Bench) -> Sequence[Check]:
    """Choices of one request hit each other's blocks, which hides a stranger's.

    So a disguise that hides is left out where another one tells, and one choice reads after two.
    """
    two = {"n": 2, "temperature": 1}
    ways = []
    for route in (CHAT_ROUTE, PLAIN_ROUTE):
        one, many = _with(route, {}), _with(route, two)
        streamed = _with(route, two, stream=True)
        scoped = _scoped(bench, route, SHARED_SCOPE, two, stream=True)
        for said, warm, probe in (
            ("two, read by one", many, one),
            ("two", many, many),
            ("two, streamed", streamed, streamed),
            ("two, streamed, in a scope", scoped, scoped),
        ):
            victim, spy = sending(bench.victim, warm), sending(bench.spy, probe)
            ways.append(Way(f"{route.name}: {said}", victim, spy))
    trials = await bench.trials(ways)
    told = {t.way.partition(":")[0] for t in trials if t.outcome in (Outcome.HELD, Outcome.LEAK)}
    return [
        _check(
            "choices",
            [
                replace(t, outcome=Outcome.HIDDEN)
                if t.why == HIDDEN and t.way.partition(":")[0] in told
                else t
                for t in trials
            ],
        )
    ]


async def _fields(bench: Bench) -> Sequence[Check]:
    return [_check("fields", await tried(bench, by_turns(bench, body_fields)))]


async def _headers(bench: Bench) -> Sequence[Check]:
    return [_check("headers", await tried(bench, by_turns(bench, request_headers)))]


async def _doubled(bench: Bench) -> Sequence[Check]:
    ask = bench.route.ask
    ways = [
        Way(
            each.way,
            sending(bench.victim, ask),
            sending(bench.spy, partial(each.spy, bench.route)),
            bench.floor,
            brief=True,
            dressed=True,
        )
        for each in doubled(bench.victim.tenant)
    ]
    return [_check("doubled", await bench.trials(ways))]


async def _adapters(bench: Bench) -> Sequence[Check]:
    """Untagged, an adapter's name and a salt of the same letters make one block hash.

    Both directions, for a stranger; and within a tenant, who would be served KV of other weights.
    """
    parents = await bench.spy.parents()
    others = [model for model, parent in parents.items() if parent is not None][:2]
    if not others:
        lacking = "The target lists no model with a parent, as vLLM lists adapters."
        return not_made("isolation", "G1", {"adapters": CHECKS["adapters"]}, lacking)
    ways = []
    for other in others:
        salted = _with(bench.route, {"cache_salt": other})
        adapter = _with(bench.route, {"model": other, "cache_salt": None})
        for who, spy in (("a stranger", bench.spy), ("its owner", bench.victim)):
            for said, warm, probe in (
                (f"salt, then {other}", salted, adapter),
                (f"{other}, then salt", adapter, salted),
            ):
                ask = sending(bench.victim, warm), sending(spy, probe)
                ways.append(Way(f"{who}: {said}", *ask, dressed=True))
    return [_check("adapters", await bench.trials(ways))]


def _check(name: str, trials: Sequence[Trial]) -> Check:
    return check(name, CHECKS[name], trials)


def _with(
    route: Route, fields: Mapping[str, Any], *, stream: bool = False
) -> Callable[[Client, str], Awaitable[Answer]]:
    return lambda client, prompt: route.ask(client, prompt, fields, stream=stream)


def _scoped(
    bench: Bench,
    route: Route,
    scope: str | None,
    more: Mapping[str, Any] = MappingProxyType({}),
    *,
    stream: bool,
) -> Callable[[Client, str], Awaitable[Answer]]:
    """In the tenant's own part of its cache, as tenants of this target name theirs."""

    def ask(client: Client, prompt: str) -> Awaitable[Answer]:
        salted = {} if scope is None else {"cache_salt": bench.salt(client, scope)}
        fields = {**more, **salted}
        return route.ask(client, prompt, fields, stream=stream)

    return ask


PARTS: Mapping[str, Callable[[Bench], Awaitable[Sequence[Check]]]] = {
    "what another writes as its salt": _known_salt,
    "routes": _routes,
    "further tenants": check_further,
    "several choices": _choices,
    "scopes that look alike": check_scopes,
    "fields": _fields,
    "headers": _headers,
    "what comes twice": _doubled,
    "adapters": _adapters,
}
"""The suite in its order, by what progress says."""

SUITE = Suite(
    "isolation",
    "Does any request hit what another tenant has cached?",
    ("G1",),
    run,
    share=2.0,
    least_s=140.0,
)
