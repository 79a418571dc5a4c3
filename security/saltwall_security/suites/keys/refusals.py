"""401 is the same, byte for byte, whatever is wrong with the key."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from urllib.parse import urlsplit

from saltwall_security.abandonable import abandonable
from saltwall_security.check import Check, judge
from saltwall_security.raw_http import Headers, Reply, Wire
from saltwall_security.suite import Audit
from saltwall_security.suites.isolation.routes import ROUTES, Route
from saltwall_security.suites.keys.alike import Alike, is_of_any_path
from saltwall_security.suites.keys.bad_keys import UNKNOWN, Presented, bad_keys, bearer

REFUSED, TOO_MANY = (401, 403), 429
MALFORMED = (400, 413, 414, 431)
"""What a server may say to a request that it cannot read, before it looks at any key."""
SERVED = (200, None)
"""Also what was not answered, which may have been."""
FEW_WORDS = 3
TIMEOUT_S = 30.0
EQUAL, MORE, AGAIN = 3, 20, 3
"""How often an unknown key is presented at first; and where another was answered otherwise, how
often more, and how often the other again: what tells of it is there each time."""


async def check_refusals(audit: Audit, dead: Mapping[str, str]) -> Check:
    """Presents all of them on every route.

    Args:
        dead: keys that were good once, by what became of them.
    """
    good, other = (tenant.key or "" for tenant in audit.target.tenants[:2])
    presented = [bearer(kind, key) for kind, key in dead.items()]
    presented += bad_keys(good, other, audit.rng)
    nobodys = next(each for each in presented if each.kind == UNKNOWN)
    answers = await abandonable(_present, audit, [nobodys] * (EQUAL - 1) + presented)
    odd = {kind for each in answers.values() for kind, _ in each.odd}
    again: Mapping[str, Answers] = {}
    if odd:  # it may be so by chance, or whatever the key
        audit.say("what else bad keys are told")
        more = [nobodys] * MORE
        for each in presented:
            if each.kind in odd:
                more += [each] * AGAIN + [nobodys] * 2
                if each.twin is not None:
                    more += [Presented(_twin(each.kind), each.twin)] * 2
        again = await abandonable(_present, audit, more)
    return _same(answers, again, dead)


async def check_missing(audit: Audit) -> Check:
    """Sends no key, and a name where other servers look for one."""
    name = audit.target.tenants[0].name.encode().decode("latin-1")  # UTF-8, as headers take it
    missing = [
        Presented("nothing", ()),
        Presented("a name in other headers", (("x-api-key", name), ("x-user", name))),
        Presented("a name in a cookie", (("cookie", f"api_key={name}; session={name}"),)),
    ]
    answers = await abandonable(_present, audit, missing, _generating(audit))
    return _closed(answers)


@dataclass(frozen=True)
class Answers:
    """What a route answered to a good key, and to each kind that is none."""

    good: Reply
    others: Sequence[tuple[str, Reply]]

    @property
    def opens(self) -> bool:
        """Whether the good one gets past what refuses most of the others."""
        status = self.good.status
        usual = Counter(reply.status for _, reply in self.others).most_common(1)[0][0]
        return usual in REFUSED and status is not None and status < 500 and status not in REFUSED

    def of(self, kind: str) -> Sequence[Reply]:
        """Those to one kind."""
        return [reply for each, reply in self.others if each == kind]

    @property
    def odd(self) -> Sequence[tuple[str, Reply]]:
        """Those that an unknown key is not given."""
        alike = Alike(self.of(UNKNOWN))
        return [(kind, reply) for kind, reply in self.others if not alike.holds(reply)]

    def told(self, kind: str) -> bool:
        """Whether a kind was answered unlike an unknown key, because it is near a good one rather
        than malformed: with another refusal, or each time, as headers may vary by themselves."""
        replies, alike = self.of(kind), Alike(self.of(UNKNOWN))
        unlike = [reply for reply in replies if not alike.holds(reply)]
        twins = self.of(_twin(kind))
        if twins and all(
            reply.status in MALFORMED and Alike(twins).holds(reply) for reply in unlike
        ):
            return False
        chosen = {reply.status for reply in unlike if is_refusal(reply)} - alike.statuses
        return bool(chosen) or len(unlike) == len(replies)


def _twin(kind: str) -> str:
    return f"{kind}, of an unknown key"


Requests = Mapping[str, tuple[str, str, bytes | None]]
"""Method, path and body, by what they are called."""


def _generating(audit: Audit) -> Requests:
    """A sound request on each route that generates; one may have been left open."""
    url = urlsplit(audit.target.url)
    base = url.path.rstrip("/")
    root = base.removesuffix("/v1")

    def asked(route: Route) -> tuple[str, str, bytes]:
        body = {"model": audit.target.model, **route.body(audit.words(FEW_WORDS))}
        return "POST", f"{root if route.rooted else base}{route.path}", json.dumps(body).encode()

    return {f"{route.name}, generating": asked(route) for route in ROUTES}


def _present(
    audit: Audit, presented: Sequence[Presented], more: Requests = MappingProxyType({})
) -> Mapping[str, Answers]:
    """By route.

    Args:
        more: further requests; those that neither a good key nor another gets are left out.

    A route is left out where it answers as paths do that cannot exist.
    """
    base = urlsplit(audit.target.url).path.rstrip("/")
    body = json.dumps({"model": audit.target.model, "prompt": "Salt.", "max_tokens": 1}).encode()
    routes: Requests = {
        "GET /models": ("GET", f"{base}/models", None),
        "POST /completions": ("POST", f"{base}/completions", body),
        "POST /chat/completions, no JSON": ("POST", f"{base}/chat/completions", b"{"),
    }
    key = audit.target.tenants[0].key
    good = bearer("good", key) if key else Presented("good", ())
    found = {}
    with Wire(audit.target.url, TIMEOUT_S) as wire:
        for name, (method, path, content) in {**routes, **more}.items():
            plain: Headers = [("content-type", "application/json")] if content else []
            first, *others = [
                wire.send(method, path, [*plain, *each.headers], content)
                for each in (good, *presented)
            ]
            kinds = [each.kind for each in presented]
            served = next(filter(is_success, others), None)
            elsewhere = partial(wire.send, method, headers=plain, body=content)
            if served and is_of_any_path(elsewhere, path, served):
                continue
            if name in routes or any(each.status in SERVED for each in (first, *others)):
                found[name] = Answers(first, list(zip(kinds, others, strict=True)))
    return found


def is_refusal(reply: Reply) -> bool:
    """Whether the request was found wanting, rather than the server, or too many of them."""
    return reply.status is not None and 400 <= reply.status < 500 and reply.status != TOO_MANY


def is_success(reply: Reply) -> bool:
    """Whether it was let in."""
    return reply.status is not None and reply.status < 300


def _same(
    answers: Mapping[str, Answers], again: Mapping[str, Answers], dead: Mapping[str, str]
) -> Check:
    """Each route's answers are one and the same, and a refusal."""
    rows, told, doubted, let_in, noise = [], set[str](), set[str](), set[str](), set[str]()
    steady, statuses = True, set[str]()
    for route, first in answers.items():
        second = again.get(route, Answers(first.good, ()))
        both = Answers(first.good, [*first.others, *second.others])
        alike = Alike(both.of(UNKNOWN))
        steady, noise = steady and alike.steady, noise | alike.noisy
        statuses.add(str(first.of(UNKNOWN)[0].status))
        let_in |= {kind for kind, reply in both.others if is_success(reply)}
        for kind, reply in first.odd:
            if not alike.holds(reply):
                (told if both.told(kind) else doubted).add(kind)
                rows.append({"route": route, "key": kind, "answer": reply.status})
    told |= let_in
    kinds = len({kind for each in answers.values() for kind, _ in each.others})
    said = f"{kinds} kinds of keys on {len(answers)} routes"
    but = f", but for what equal requests differ in, too ({', '.join(sorted(noise))})"
    seen = (
        f"{said} were answered {', '.join(sorted(statuses))}, with the same bytes and headers"
        f"{but if noise else ''}."
    )
    if told:
        seen = f"Of {said}, {len(told)} were told apart: {', '.join(sorted(told)[:6])}."
    elif doubted:
        seen = (
            f"Of {said}, {len(doubted)} were answered otherwise, but not each time, or as "
            f"malformed whatever the key: {', '.join(sorted(doubted)[:6])}."
        )
    if not steady:
        seen += " Refusals of one and the same key differ by themselves."
    if let_in:
        seen += f" {len(let_in)} were let in: {', '.join(sorted(let_in)[:6])}."
    *named, last = "Unknown", "malformed", *dead
    once = ", ".join(dead) or "none, as there was no operator to end any"
    sure = steady and not doubted and all(each.opens for each in answers.values())
    return Check(
        "keys/refusals",
        "G7",
        judge(bool(told), bool(answers) and sure),
        f"{', '.join(named)} and {last} keys get one answer, byte for byte",
        seen,
        {"kinds": kinds, "told_apart": len(told), "let_in": len(let_in)},
        f"{_opened(answers)} Keys that had been good before: {once}.",
        table=rows,
        advice="Answer every bad key from one place, after the same steps." if told else "",
    )


def _opened(answers: Mapping[str, Answers]) -> str:
    said = (f"{route} {answered.good.status}" for route, answered in answers.items())
    return f"A good key was answered: {'; '.join(said)}."


def _closed(answers: Mapping[str, Answers]) -> Check:
    statuses: dict[str, set[int | None]] = {}
    for answered in answers.values():
        for kind, reply in answered.others:
            statuses.setdefault(kind, set()).add(reply.status)
    served = [
        kind for kind, found in statuses.items() if any(s is not None and s < 300 for s in found)
    ]
    open_routes = [
        route
        for route, answered in answers.items()
        if any(reply.status is not None and reply.status < 300 for _, reply in answered.others)
    ]
    silent = any(None in found for found in statuses.values())
    shown = "; ".join(
        f"{kind}: {', '.join(sorted(map(str, found)))}" for kind, found in statuses.items()
    )
    return Check(
        "keys/missing",
        "G7",
        judge(
            bool(served),
            not silent and bool(answers) and all(each.opens for each in answers.values()),
        ),
        "Without a key nothing is served, whatever other headers hold",
        f"Answers by what was sent: {shown}; open were {', '.join(open_routes) or 'none'} of "
        f"{len(answers)} routes.",
        {"let_through": len(served), "routes_open": len(open_routes)},
        _opened(answers),
        advice="Ask every caller for a key." if served else "",
    )
