"""G7: the engine serves only what its gateway has sealed, for whom, and just now.

The auditor knocks at the engine's own port. Where it may act as operator on this machine it starts
a second gateway and listens between that and the engine: genuine requests, to be altered and moved.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from uuid import UUID

import httpx

from saltwall_security.abandonable import abandonable
from saltwall_security.check import Check, Verdict
from saltwall_security.errors import AuditError
from saltwall_security.operator import CommandLine
from saltwall_security.prober import Prober, Refused
from saltwall_security.raw_http import Reply, Wire
from saltwall_security.recording import Recorded
from saltwall_security.still_served import still_served
from saltwall_security.suite import Audit, Suite
from saltwall_security.suites.ticket import doors
from saltwall_security.suites.ticket.altered import altered, malformed, moved
from saltwall_security.suites.ticket.front import check_request_ids, check_stolen
from saltwall_security.suites.ticket.headers import check_load, check_unsealed
from saltwall_security.suites.ticket.minted import LIFETIME_S, Mint, misdirected, outdated
from saltwall_security.suites.ticket.shots import TIMEOUT_S, Hit, Shot, fire, refused
from saltwall_security.suites.ticket.spied import Spied, spied_gateway
from saltwall_security.suites.ticket.standing import CLAIM as STANDING
from saltwall_security.suites.ticket.standing import check_standing
from saltwall_security.target import Access, Operator, Tenant

CLAIMS = {
    "strangers": "Without a genuine ticket and seal the engine's port serves nothing",
    "routes": "No other route exists at the engine's port, for anybody but its operator",
    "websockets": "Nor does any websocket",
    "control-secret": "Control routes open to the whole control secret alone",
    "bodies": "No body makes the engine's port wait or hold more than its bound",
    "altered": "One bit of ticket or seal changed, or cut, is refused",
    "moved": "Ticket and seal of one request open no other: body, path, method, model, tenant",
    "malformed": "No malformed request is served, or takes the engine down",
    "lifetime": "A ticket older than its lifetime, or from the future, is refused",
    "audience": "A ticket for another engine, key, tenant or generation is refused",
    "standing": STANDING,
    "unsealed-headers": "Headers that are added to a sealed request change nothing at the engine",
    "stolen": "A stolen ticket is worth nothing at the front door",
    "serves": "After all this the engine serves as before",
}
SEALED = (
    "altered",
    "moved",
    "malformed",
    "sealed-routes",
    "sealed-websockets",
    "sealed-bodies",
    "unsealed-headers",
    "stolen",
    "standing",
    "lifetime",
    "audience",
)
"""Those that need genuine requests."""
OK, NOT_WELL = 200, 500
REFUSAL_HEADER = "x-saltwall-refusal"
"""In it an engine says what a ticket or a seal lacks."""
OPEN_PORT = "Let the engine demand a ticket that the gateway makes for each request, and keep its "
OPEN_PORT += "port to the gateway."
NO_OPERATOR = (
    "genuine tickets come from a second gateway that the auditor starts with the operator's "
    "`saltwall` command on this machine (--home)"
)


async def run(audit: Audit) -> AsyncIterator[Check]:
    """Knocks without credentials, then with genuine ones that were tampered with."""
    health, told = await _health(audit)
    if health is None or health >= NOT_WELL:
        for name, claim in CLAIMS.items():
            yield Check(f"ticket/{name}", "G7", Verdict.INCONCLUSIVE, claim, told)
        return
    probe = Prober()
    with suppress(Refused):  # it finds the route that there is
        await probe(audit.client(0), audit.words(5))
    before = await _served(audit, probe)
    async for check in unsealed(audit):
        yield check
    operator = audit.target.operator
    if isinstance(operator, CommandLine) and operator.local:
        made = set[str]()
        try:
            async with spied_gateway(audit.target, operator) as spied:
                async for check in sealed(audit, operator, spied):
                    made.add(check.id)
                    yield check
        except AuditError as error:
            for name in SEALED:
                if f"ticket/{name}" not in made:
                    yield _untested(name, f"no genuine request could be recorded: {error}")
    else:
        for name in SEALED:
            yield _untested(name, NO_OPERATOR)
    verdict, after = await still_served(before, lambda: _served(audit, probe))
    yield Check(
        "ticket/serves",
        "G7",
        verdict,
        CLAIMS["serves"],
        "The engine's /health and two tenants' requests were answered "
        f"{', '.join(map(str, after))}.",
        control=f"Before all this: {', '.join(map(str, before))}.",
    )


async def unsealed(audit: Audit) -> AsyncIterator[Check]:
    """What there is to be had at the doors without a genuine ticket."""
    target, url = audit.target, audit.target.engine_url or ""
    audit.say("the engine's port without a ticket")
    hits = await fire(url, doors.strangers(target, audit.rng))
    engine = await _is_engine(audit, hits[0].reply)
    yield _check("strangers", hits, engine, advice=OPEN_PORT)
    found = await abandonable(lambda: list(doors.described(target)))
    hits = await fire(url, doors.unlisted(target, found, None))
    yield _check("routes", hits, engine, advice=OPEN_PORT)
    yield _check("websockets", await fire(url, doors.sockets(None)), engine)
    endless = doors.endless(None)
    waits = await asyncio.gather(*(fire(url, [shot], doors.PATIENCE_S) for shot in endless))
    yield _check("bodies", [hit for hits in waits for hit in hits], engine, malformed=True)
    if target.control_secret:
        hits = await fire(url, doors.secrets_cut(target.control_secret))
        yield _check("control-secret", hits, await _with_secret(audit), advice=OPEN_PORT)
    else:
        yield _untested("control-secret", "the engine's control secret was not given")
    yield await check_load(audit)
    yield await check_request_ids(audit)


async def sealed(audit: Audit, operator: Operator, spied: Spied) -> AsyncIterator[Check]:
    """What there is to be had with genuine requests that went by."""
    url, tenants = audit.target.engine_url or "", audit.target.tenants
    audit.say("genuine requests, altered and moved")

    async def genuine(tenant: Tenant = tenants[0]) -> Recorded:
        return await spied.record(tenant, audit.words(5))

    async def checked(
        name: str,
        shots: Callable[[Recorded], Awaitable[Sequence[Shot]] | Sequence[Shot]],
        *,
        malformed: bool = False,
    ) -> Check:
        recorded = await genuine()
        made = shots(recorded)
        hits = await fire(url, made if isinstance(made, Sequence) else await made)
        return _check(name, hits, await _replayed(url, recorded), malformed=malformed)

    yield await checked("altered", lambda recorded: altered(recorded, audit.rng))

    async def elsewhere(recorded: Recorded) -> Sequence[Shot]:
        return moved(recorded, await genuine(tenants[1]))

    yield await checked("moved", elsewhere)
    yield await checked(
        "malformed", lambda recorded: malformed(recorded, audit.rng), malformed=True
    )
    yield await checked(
        "sealed-routes", lambda recorded: doors.unlisted(audit.target, (), recorded)
    )
    yield await checked("sealed-websockets", doors.sockets)
    yield await checked("sealed-bodies", doors.endless, malformed=True)
    yield await check_unsealed(audit, await genuine())
    yield await check_stolen(audit, spied)
    yield await check_standing(audit, operator, spied)
    for check in await _minted(audit, spied):
        yield check


async def _minted(audit: Audit, spied: Spied) -> Sequence[Check]:
    """With the engine's keys at hand; without them, by waiting for a ticket to grow old."""
    tenant, url = audit.target.tenants[0], audit.target.engine_url or ""
    mint = await asyncio.to_thread(Mint.read, spied.keys_file)
    recorded = await spied.record(tenant, audit.words(5))
    if mint is None or tenant.id is None:
        why = "the engine's key file cannot be read, or the tenant's id was not given"
        lifetime = _untested("lifetime", f"{why}, and waiting needs {LIFETIME_S} s more")
        if audit.left_s > LIFETIME_S + TIMEOUT_S:
            fresh = await _replayed(url, recorded)
            await asyncio.sleep(LIFETIME_S + 1)
            lifetime = _check("lifetime", await fire(url, [Shot("61 s old", recorded)]), fresh)
        return [lifetime, _untested("audience", why)]
    who = UUID(tenant.id)
    control = await _replayed(url, mint.remake(recorded, who))
    return [
        _check("lifetime", await fire(url, outdated(mint, recorded, who)), control),
        _check("audience", await fire(url, misdirected(mint, recorded, who)), control),
    ]


async def _served(audit: Audit, probe: Prober) -> Sequence[int | str | None]:
    """What the engine's health and a request of each of two tenants are answered."""
    answers: list[int | str | None] = [(await _health(audit))[0]]
    for number in range(2):
        path, prompt = probe.request(audit.words(5))
        try:
            answer = await audit.client(number).ask(path, {**prompt, "max_tokens": 1})
        except httpx.HTTPError as error:
            answers.append(type(error).__name__)
        else:
            answers.append(answer.status)
    return answers


async def _health(audit: Audit) -> tuple[int | None, str]:
    request = Recorded("GET", "/health", (), b"")
    reply = (await fire(audit.target.engine_url or "", [Shot("health", request)]))[0].reply
    if reply.status is None:
        return None, f"The engine's port does not answer ({reply.trouble})."
    return reply.status, f"The engine's /health answers {reply.status}."


async def _is_engine(audit: Audit, completion: Reply) -> tuple[bool, str]:
    """Whether it is an engine, and ready, that refuses: any other server would, too.

    Args:
        completion: the answer to one without credentials, by which it is known if there is no
            control secret.
    """
    health, told = await _health(audit)
    known = completion.header(REFUSAL_HEADER) is not None
    said = f"A completion is answered {completion.status}, {'' if known else 'not '}as it would."
    if audit.target.control_secret:
        known, said = await _with_secret(audit)
    return health == OK and known, f"{told} {said}"


async def _with_secret(audit: Audit) -> tuple[bool, str]:
    def ask() -> int | None:
        bearer = [("authorization", f"Bearer {audit.target.control_secret}")]
        with Wire(audit.target.engine_url or "", TIMEOUT_S) as wire:
            return wire.send("GET", "/saltwall/v1/usage", bearer).status

    status = await abandonable(ask)
    return status == OK, f"The whole secret was answered {status}."


async def _replayed(url: str, request: Recorded) -> tuple[bool, str]:
    reply = (await fire(url, [Shot("genuine", request)]))[0].reply
    told = f"The genuine request, unchanged, was answered {reply.status or reply.trouble}."
    return reply.status == OK, told


def _check(
    name: str,
    hits: Sequence[Hit],
    control: tuple[bool, str],
    *,
    malformed: bool = False,
    advice: str = "",
) -> Check:
    claim = CLAIMS[name.removeprefix("sealed-")]
    return refused(name, claim, hits, control, malformed=malformed, advice=advice)


def _untested(name: str, why: str) -> Check:
    claim, seen = CLAIMS[name.removeprefix("sealed-")], f"Not tested: {why}."
    return Check(f"ticket/{name}", "G7", Verdict.NOT_TESTED, claim, seen)


SUITE = Suite(
    "ticket",
    "Can the engine be used without its gateway's ticket, or with one that is not for this?",
    ("G7",),
    run,
    needs=frozenset({Access.ENGINE}),
    share=1.0,
    least_s=10.0,
)
