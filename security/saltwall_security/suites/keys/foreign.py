"""Another tenant's things, asked for by their ids with a key of one's own; and the operator's."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from saltwall_security.abandonable import abandonable
from saltwall_security.check import Check, judge
from saltwall_security.client import COMPLETIONS, MODELS, Answer, Client
from saltwall_security.raw_http import Reply, Wire
from saltwall_security.running import Running
from saltwall_security.suite import Audit
from saltwall_security.suites.keys.refusals import fingerprint

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


async def check_models(audit: Audit) -> Check:
    """A model that only the victim may use looks, to the spy, like one that is not there."""
    victim, spy = audit.client(0), audit.client(1)
    theirs, mine = await victim.models(), await spy.models()
    hidden = [model for model in theirs if model not in mine][:3]
    absent = f"audit-{audit.rng.randrange(16**8):08x}"
    told = [model for model in hidden if await _looks(spy, model) != await _looks(spy, absent)]
    served = [(await _ask(spy, model)).ok for model in (absent, *hidden)]
    known = (await _ask(spy, mine[0])).ok if mine else False
    verdict = judge(bool(told) or any(served), known)
    if not hidden and not any(served):
        seen = "Both tenants may use the same models; one that does not exist was refused."
    else:
        seen = (
            f"Of {len(hidden)} models that only the other tenant may use, {len(told)} could be "
            f"told from one that does not exist, and {sum(served)} answered."
        )
    return Check(
        "keys/models",
        "G7",
        verdict,
        "A model that a tenant may not use looks to it like one that does not exist",
        seen,
        {"hidden_models": len(hidden), "told": len(told), "served": sum(served)},
        f"A model of its own was {'served' if known else 'not served'}.",
    )


async def _ask(client: Client, model: str) -> Answer:
    return await client.complete("Salt.", model=model)


async def _looks(client: Client, model: str) -> Sequence[object]:
    """Everything an answer shows of a model, but its name and what varies by itself."""
    shown = []
    for answer in (await client.send("GET", f"/models/{model}"), await _ask(client, model)):
        body = answer.body.replace(model.encode(), b"MODEL")
        reply = Reply(answer.status, tuple(answer.headers.items()), body)
        shown.append(fingerprint(reply)[:2])
    return shown


async def check_requests(audit: Audit) -> Check:
    """While the victim's stream runs, the spy asks for it, cancels it and goes on by its id."""
    victim, spy = audit.client(0), audit.client(1)
    alone, _ = await _whole(audit, None)
    attacked, answers = await _whole(audit, spy)
    if attacked.cut:  # which may be chance, once
        attacked, more = await _whole(audit, spy)
        answers = [*answers, *more]
    kept = await _stored(audit, victim, spy)
    got = [what for what, status in answers if 200 <= status < 300]
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
        table=[{"request": what, "answer": status} for what, status in answers],
    )


async def _whole(audit: Audit, spy: Client | None) -> tuple[Running, Sequence[tuple[str, int]]]:
    """A stream of the victim's, and the spy's answers while it ran; None leaves it alone."""
    fields = {"prompt": audit.words(8), "max_tokens": STREAM_TOKENS, "ignore_eos": True}
    running = Running(audit.client(0).opened(COMPLETIONS, fields))
    answers: list[tuple[str, int]] = []
    try:
        if spy is not None and await running.began(30):
            for each in sorted(running.ids):
                answers += await _reach(spy, each)
        await running.ended(60)
    finally:
        await running.stop()
    return running, answers


async def _reach(spy: Client, request: str) -> Sequence[tuple[str, int]]:
    tries: Sequence[tuple[str, str, Mapping[str, object] | None]] = (
        ("GET", f"/responses/{request}", None),
        ("GET", f"/chat/completions/{request}", None),
        ("GET", f"/completions/{request}", None),
        ("DELETE", f"/responses/{request}", None),
        ("DELETE", f"/chat/completions/{request}", None),
        ("POST", f"/responses/{request}/cancel", {}),
        ("POST", f"/completions/{request}/cancel", {}),
        ("POST", "/abort_requests", {"request_ids": [request]}),
    )
    answers = []
    for method, path, body in tries:
        try:
            answer = await spy.send(method, path, body)
        except httpx.HTTPError:
            continue
        answers.append((f"{method} {path.replace(request, 'ID')}", answer.status))
    return answers


@dataclass(frozen=True)
class Kept:
    """A response that the server was asked to keep.

    Args:
        owner, stranger: the statuses of reading it.
        continued: the stranger's request that went on from it had its tokens in the prompt.
    """

    owner: int
    stranger: int
    continued: bool

    @property
    def leaked(self) -> bool:
        """Whether the stranger got anything of it."""
        return self.stranger == OK or self.continued


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
        stranger = (await spy.send("GET", f"{RESPONSES}/{name}")).status
        alone = await spy.ask(RESPONSES, short)
        after = await spy.ask(RESPONSES, {**short, "previous_response_id": name})
        more = (after.prompt_tokens or 0) - (alone.prompt_tokens or 0)
        return Kept(owner, stranger, after.ok and alone.ok and more >= KEPT_WORDS)
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
    control, *replies = await abandonable(_operators, audit.target.url, key)
    shown = sorted(
        {path for path, reply in replies if reply.status is not None and reply.status < 300}
    )
    return Check(
        "keys/operators-routes",
        "G7",
        judge(bool(shown), control[1].status == OK),
        "The tenants' port shows nothing of load, tenants or keys",
        f"Of {len(OPERATORS)} routes, {len(shown)} answered"
        f"{': ' + ', '.join(shown) if shown else ''}.",
        {"routes": len(OPERATORS), "answered": len(shown)},
        f"The same port answered {control[1].status} on {control[0]}.",
        advice="Serve what is the operator's on a port of its own." if shown else "",
    )


def _operators(url: str, key: str | None) -> Sequence[tuple[str, Reply]]:
    """The answers of the tenants' own route of models, and then of the operator's, beside it."""
    bearer = [("authorization", f"Bearer {key}")] if key else []
    base = urlsplit(url).path.rstrip("/")
    root = base.removesuffix("/v1")
    with Wire(url) as wire:
        return [
            (MODELS, wire.send("GET", f"{base}{MODELS}", bearer)),
            *(
                (path, wire.send("GET", f"{root}{path}", headers))
                for path in OPERATORS
                for headers in ([], bearer)
            ),
        ]
