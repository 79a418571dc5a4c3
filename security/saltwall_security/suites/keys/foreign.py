"""Another tenant's things, asked for by their ids with a key of one's own; and the operator's."""

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from saltwall_security.abandonable import abandonable
from saltwall_security.check import Check, judge
from saltwall_security.client import COMPLETIONS, MODELS, Answer, Client
from saltwall_security.raw_http import Headers, Reply, Wire
from saltwall_security.running import Running
from saltwall_security.suite import Audit
from saltwall_security.suites.keys.alike import (
    ASKED,
    absent,
    are_steady,
    is_of_any_path,
    is_of_none,
)
from saltwall_security.suites.keys.refusals import is_success

RESPONSES = "/responses"
STREAM_TOKENS, KEPT_WORDS = 64, 30
OK = 200
OPERATORS = (
    "/admin",
    "/admin/tenants",
    "/is_sleeping",
    "/load",
    "/metrics",
    "/readyz",
    "/saltwall/v1/attestation",
    "/saltwall/v1/metrics",
    "/saltwall/v1/usage",
    "/server_info",
    "/v1/admin/tenants",
    "/v1/api_keys",
    "/v1/keys",
    "/v1/organization/api_keys",
    "/v1/tenants",
    "/v1/usage",
)
"""Where servers show load, tenants or keys."""
READY, READY_WORDS = "/readyz", 2
"""That it is ready shows nothing, in a word or in a member of an object."""


async def check_models(audit: Audit) -> Check:
    """A model that only the victim may use looks, to the spy, like one that is not there."""
    victim, spy = audit.client(0), audit.client(1)
    theirs, mine = await victim.models(), await spy.models()
    hidden = [model for model in theirs if model not in mine][:3]
    other = absent()
    nothing = [await _looks(spy, other) for _ in range(ASKED)]
    ignored = any(ask.status == OK for _, ask in nothing)
    told, served = [], 0
    for model in hidden:
        shown = await _looks(spy, model)
        if _differ(shown, model, nothing, other):  # perhaps by chance
            nothing += [await _looks(spy, other) for _ in range(ASKED)]
            shown = await _looks(spy, model)
        if _differ(shown, model, nothing, other):
            told.append(model)
            served += shown[1].status == OK
    known = (await _ask(spy, mine[0])).ok if mine else False
    sure = known and not ignored and all(map(are_steady, zip(*nothing, strict=True)))
    if ignored:
        seen = "It answers under any model's name, also that of one that does not exist."
    elif not hidden:
        seen = "Both tenants may use the same models; one that does not exist was refused."
    else:
        seen = (
            f"Of {len(hidden)} models that only the other tenant may use, {len(told)} could be "
            f"told from one that does not exist, and {served} answered."
        )
    return Check(
        "keys/models",
        "G7",
        judge(bool(told), sure),
        "A model that a tenant may not use looks to it like one that does not exist",
        seen,
        {"hidden_models": len(hidden), "told": len(told), "served": served},
        f"A model of its own was {'served' if known else 'not served'}.",
    )


async def _ask(client: Client, model: str) -> Answer:
    return await client.complete("Salt.", model=model)


async def _looks(client: Client, model: str) -> tuple[Reply, Reply]:
    """What is said of a model, and what is answered under its name, but what is generated."""
    said, asked = await client.send("GET", f"/models/{model}"), await _ask(client, model)
    return _reply(said), Reply(asked.status, body=b"" if asked.ok else asked.body)


def _differ(
    shown: tuple[Reply, Reply], model: str, nothing: Sequence[tuple[Reply, Reply]], other: str
) -> bool:
    return not all(
        is_of_none(each, model, others, other)
        for each, others in zip(shown, zip(*nothing, strict=True), strict=True)
    )


def _reply(answer: Answer) -> Reply:
    return Reply(answer.status, body=answer.body)


async def check_requests(audit: Audit) -> Check:
    """While the victim's stream runs, the spy asks for it, cancels it and goes on by its id."""
    victim, spy = audit.client(0), audit.client(1)
    alone, _ = await _whole(audit, None)
    attacked, answers = await _whole(audit, spy)
    if attacked.cut:  # which may be chance, once, or the server's end
        attacked, more = await _whole(audit, spy)
        answers = [*answers, *more]
        alone, _ = await _whole(audit, None) if attacked.cut else (alone, ())
    kept = await _stored(audit, victim, spy)
    got = [f"{each.method} {each.path}" for each in answers if each.tells]
    if kept is not None and kept.leaked:
        got.append("a kept response")
    cut = alone.finished and attacked.cut
    verdict = judge(bool(got) or cut, alone.finished and attacked.finished)
    return Check(
        "keys/foreign-requests",
        "G7",
        verdict,
        "Another tenant's requests and responses cannot be read, continued or cancelled by id",
        f"{len(answers)} requests with the ids of another tenant's running request: "
        f"{len(got)} answered{' (' + ', '.join(got[:4]) + ')' if got else ''}; its stream "
        f"{attacked.end}. {_told(kept)}",
        {"requests": len(answers), "answered": len(got), "events": attacked.events},
        f"A stream left alone {alone.end}.",
        table=[
            {"request": f"{each.method} {each.path}", "answer": each.status} for each in answers
        ],
    )


@dataclass(frozen=True)
class Reach:
    """An answer to a request with a foreign id, for which the path has "ID".

    Args:
        tells: it was done, and ids that cannot exist are answered otherwise.
    """

    method: str
    path: str
    status: int
    tells: bool


async def _whole(audit: Audit, spy: Client | None) -> tuple[Running, Sequence[Reach]]:
    """A stream of the victim's, and the spy's answers while it ran; None leaves it alone."""
    fields = {"prompt": audit.words(8), "max_tokens": STREAM_TOKENS, "ignore_eos": True}
    running = Running(audit.client(0).opened(COMPLETIONS, fields))
    answers: list[Reach] = []
    try:
        if spy is not None and await running.began(30):
            for each in sorted(running.ids):
                answers += await _reach(spy, each)
        await running.ended(60)
    finally:
        await running.stop()
    return running, answers


async def _reach(spy: Client, request: str) -> Sequence[Reach]:
    tries: Sequence[tuple[str, str, Mapping[str, object] | None]] = (
        ("GET", "/responses/ID", None),
        ("GET", "/chat/completions/ID", None),
        ("GET", "/completions/ID", None),
        ("DELETE", "/responses/ID", None),
        ("DELETE", "/chat/completions/ID", None),
        ("POST", "/responses/ID/cancel", {}),
        ("POST", "/completions/ID/cancel", {}),
        ("POST", "/abort_requests", {"request_ids": [request]}),
    )
    answers = []
    for method, path, body in tries:
        with suppress(httpx.HTTPError):
            answers.append(await _asked(spy, request, method, path, body))
    return answers


async def _asked(
    spy: Client, thing: str, method: str, path: str, body: Mapping[str, object] | None = None
) -> Reach:
    """Asks for a thing by its id, and where that was done for one that cannot exist, too."""

    async def ask(name: str) -> Reply:
        given = {"request_ids": [name]} if body else body
        return _reply(await spy.send(method, path.replace("ID", name), given))

    answer = await ask(thing)
    tells = is_success(answer)
    if tells:
        other = thing[:-8] + secrets.token_hex(4)
        others = [await ask(other) for _ in range(ASKED)]
        tells = not (are_steady(others) and is_of_none(answer, thing, others, other))
    return Reach(method, path, answer.status or 0, tells)


@dataclass(frozen=True)
class Kept:
    """A response that the server was asked to keep.

    Args:
        owner, stranger: the statuses of reading it.
        read: the stranger was answered otherwise than about one that cannot exist.
        continued: the stranger's request that went on from it had its tokens in the prompt.
    """

    owner: int
    stranger: int
    read: bool
    continued: bool

    @property
    def leaked(self) -> bool:
        """Whether the stranger got anything of it."""
        return self.read or self.continued


async def _stored(audit: Audit, victim: Client, spy: Client) -> Kept | None:
    """One kept for the victim, read and continued by the spy; None where none are kept."""
    kept = {"input": audit.words(KEPT_WORDS), "max_output_tokens": 16, "store": True}
    short = {"input": "Go on.", "max_output_tokens": 16}
    try:
        made = await victim.ask(RESPONSES, kept)
        name = json.loads(made.body)["id"] if made.ok else None
        if name is None:
            return None
        owner = (await victim.send("GET", f"{RESPONSES}/{name}")).status
        stranger = await _asked(spy, name, "GET", f"{RESPONSES}/ID")
        alone = await spy.ask(RESPONSES, short)
        after = await spy.ask(RESPONSES, {**short, "previous_response_id": name})
        more = (after.prompt_tokens or 0) - (alone.prompt_tokens or 0)
        continued = after.ok and alone.ok and more >= KEPT_WORDS
        return Kept(owner, stranger.status, stranger.tells, continued)
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None


def _told(kept: Kept | None) -> str:
    if kept is None or (kept.owner != OK and not kept.leaked):
        return "No responses are kept."
    went = "could" if kept.continued else "could not"
    return (
        f"A kept response was answered {kept.stranger} to the stranger, who {went} go on from it."
    )


async def check_operators(audit: Audit) -> Check:
    """The tenants' port, with a tenant's key and without one."""
    key = audit.target.tenants[1].key
    control, shown = await abandonable(_operators, audit.target.url, key)
    return Check(
        "keys/operators-routes",
        "G7",
        judge(bool(shown), control == OK),
        "The tenants' port shows nothing of load, tenants or keys",
        f"Of {len(OPERATORS)} routes, {len(shown)} answered"
        f"{': ' + ', '.join(shown) if shown else ''}.",
        {"routes": len(OPERATORS), "answered": len(shown)},
        f"The same port answered {control} on {MODELS}.",
        advice="Serve what is the operator's on a port of its own." if shown else "",
    )


def _operators(url: str, key: str | None) -> tuple[int | None, Sequence[str]]:
    """The status of the tenants' own route of models, and those beside it that show something."""
    bearer = [("authorization", f"Bearer {key}")] if key else []
    base = urlsplit(url).path.rstrip("/")
    root = base.removesuffix("/v1")
    with Wire(url) as wire:

        def shows(path: str, headers: Headers) -> bool:
            reply = wire.send("GET", f"{root}{path}", headers)
            ready = path == READY and len(re.findall(rb"\w+", reply.body)) <= READY_WORDS
            return (
                is_success(reply)
                and not ready
                and not is_of_any_path(
                    lambda other: wire.send("GET", other, headers), f"{root}{path}", reply
                )
            )

        control = wire.send("GET", f"{base}{MODELS}", bearer)
        shown = [path for path in OPERATORS if shows(path, []) or shows(path, bearer)]
    return control.status, shown
