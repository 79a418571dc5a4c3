"""401 is the same, byte for byte, whatever is wrong with the key."""

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import urlsplit

from saltwall_security.abandonable import abandonable
from saltwall_security.check import Check, judge
from saltwall_security.raw_http import Headers, Reply, Wire
from saltwall_security.suite import Audit
from saltwall_security.suites.isolation.routes import ROUTES, Route
from saltwall_security.suites.keys.key_format import guessed, secret_chars, unknown

REFUSED = (401, 403)
SERVED = (200, None)
"""Also what was not answered, which may have been."""
FEW_WORDS = 3
TIMEOUT_S = 30.0
VARYING = frozenset({"date", "x-request-id", "request-id", "cf-ray", "traceparent"})
"""Headers that differ between any two answers."""


@dataclass(frozen=True)
class Presented:
    """A way of presenting a key that is none."""

    kind: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)


def bearer(kind: str, key: str) -> Presented:
    """A key in the usual place."""
    return Presented(kind, (("authorization", f"Bearer {key}"),))


def bad_keys(key: str, others: str, rng: random.Random) -> Sequence[Presented]:
    """Keys that nobody has, from one's own and another tenant's.

    Args:
        key: a good key.
        others: another tenant's, of which the attacker knows the public part.
    """
    length = secret_chars(key)
    texts = {
        "unknown": unknown(key, rng),
        "another's public part": guessed(others, rng),
        "all but the last character right": guessed(key, rng, length - 1),
        "half right": guessed(key, rng, length // 2),
        "cut": key[:-1],
        "half of it": key[: len(key) // 2],
        "lengthened": key + "A",
        "checksum wrong": key[:-1] + ("A" if key[-1] != "A" else "B"),
        "other case": key.swapcase(),
        "another product's": "sk-" + unknown(key, rng)[-48:],
        "one character": "x",
        "empty": "",
        "a null": "null",
        "a quotation": "' OR '1'='1",
        "an object": '{"$ne":null}',
        "not ASCII": "sw_live_\xe9\xe9\xe9",
        "long": "A" * 2000,
        "its last character accented": key[:-1] + "\xe0",
    }
    presented = [bearer(kind, text) for kind, text in texts.items()]
    odd = {
        "scheme Basic": f"Basic {key}",
        "scheme Token": f"Token {key}",
        "no scheme": key,
        "two in one header": f"Bearer {key}, Bearer {key}",
        "two words": f"Bearer {key} {key}",
    }
    presented += [Presented(k, (("authorization", text),)) for k, text in odd.items()]
    good = ("authorization", f"Bearer {key}")
    bad = ("authorization", f"Bearer {unknown(key, rng)}")
    presented.append(Presented("two headers, the good one first", (good, bad)))
    presented.append(Presented("two headers, the good one last", (bad, good)))
    return presented


async def check_refusals(audit: Audit, dead: Mapping[str, str]) -> Check:
    """Presents all of them on every route.

    Args:
        dead: keys that were good once, by what became of them.
    """
    good, other = (tenant.key or "" for tenant in audit.target.tenants[:2])
    presented = [bearer(kind, key) for kind, key in dead.items()]
    presented += bad_keys(good, other, audit.rng)
    return _same(await abandonable(_present, audit, presented), dead)


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
            if name in routes or any(each.status in SERVED for each in (first, *others)):
                found[name] = Answers(first, list(zip(kinds, others, strict=True)))
    return found


def fingerprint(reply: Reply) -> tuple[int | None, bytes, tuple[tuple[str, str], ...]]:
    """All of an answer but what differs between any two."""
    return (
        reply.status,
        reply.body,
        tuple(each for each in reply.headers if each[0] not in VARYING),
    )


def _same(answers: Mapping[str, Answers], dead: Mapping[str, str]) -> Check:
    """Each route's answers are one and the same, and a refusal."""
    rows, odd, let_in, kinds = [], set[str](), set[str](), 0
    statuses = set[str]()
    for route, answered in answers.items():
        replies = answered.others
        prints = [fingerprint(reply) for _, reply in replies]
        usual = max(set(prints), key=prints.count)
        statuses.add(str(usual[0]))
        kinds = len(replies)
        for (kind, reply), each in zip(replies, prints, strict=True):
            refused = reply.status is not None and 400 <= reply.status < 500
            if reply.status is not None and reply.status < 300:
                let_in.add(kind)
            if each != usual or not refused:
                odd.add(kind)
                rows.append({"route": route, "key": kind, "answer": reply.status})
    said = f"{kinds} kinds of keys on {len(answers)} routes"
    seen = f"{said} were answered {', '.join(sorted(statuses))}, with the same bytes and headers."
    if odd:
        seen = f"Of {said}, {len(odd)} were told apart: {', '.join(sorted(odd)[:6])}."
    if let_in:
        seen += f" {len(let_in)} were let in: {', '.join(sorted(let_in)[:6])}."
    *named, last = "Unknown", "malformed", *dead
    once = ", ".join(dead) or "none, as there was no operator to end any"
    return Check(
        "keys/refusals",
        "G7",
        judge(bool(odd), all(answered.opens for answered in answers.values())),
        f"{', '.join(named)} and {last} keys get one answer, byte for byte",
        seen,
        {"kinds": kinds, "told_apart": len(odd), "let_in": len(let_in)},
        f"{_opened(answers)} Keys that had been good before: {once}.",
        table=rows,
        advice="Answer every bad key from one place, after the same steps." if odd else "",
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
        judge(bool(served), not silent and all(each.opens for each in answers.values())),
        "Without a key nothing is served, whatever other headers hold",
        f"Answers by what was sent: {shown}; open were {', '.join(open_routes) or 'none'} of "
        f"{len(answers)} routes.",
        {"let_through": len(served), "routes_open": len(open_routes)},
        _opened(answers),
        advice="Ask every caller for a key." if served else "",
    )
