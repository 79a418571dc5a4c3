"""Do keys, tickets, prompts and scopes end up where others can read them?"""

import time
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import suppress

import httpx

from saltwall_security.abandonable import abandonable
from saltwall_security.bounded_http import http_client
from saltwall_security.check import Check, Verdict, judge
from saltwall_security.client import CHAT, COMPLETIONS
from saltwall_security.engine_control import USAGE, hex_id
from saltwall_security.errors import AuditError
from saltwall_security.suite import Audit, Suite
from saltwall_security.suites.secrecy import places
from saltwall_security.suites.secrecy.canaries import (
    PROMPT,
    SCOPE,
    TOKEN_IDS,
    Canaries,
    Needles,
)
from saltwall_security.suites.secrecy.places import Found
from saltwall_security.suites.secrecy.provoke import Received, provoke
from saltwall_security.suites.secrecy.spans import spans

MOST_NAMED = 6
CLAIMS = {
    "errors": "What one tenant sends is in no answer to another, and in no error that refuses it; "
    "no answer repeats a key",
    "logs": "No key, ticket, prompt or scope is in the logs that were given",
    "traces": "No key, ticket, prompt or scope is in the spans that a gateway exports",
    "database": "No key, ticket, prompt or scope is in the database's files",
    "metrics": "No key, ticket, prompt or scope is in metrics or health reports",
    "commands": "No key or secret is in what operators' commands print",
    "processes": "No key or secret is on a command line or in the environment of a process",
}
ADVICE = "Never write what a client sent, nor a credential, into {place}; take it out before."
WANTING = {
    "logs": "files to search were not given",
    "traces": "no gateway was started here that exports spans to the auditor",
    "database": "no SQLite file is among the files given",
    "metrics": "neither the engine's control secret nor the operators' port was given",
    "commands": "nobody runs the operator's commands",
    "processes": "the engine's process was not given",
}


async def run(audit: Audit) -> AsyncIterator[Check]:
    """Sends canaries first, and then searches."""
    target = audit.target
    canaries, since = Canaries(), time.time()
    needles = Needles.of(canaries, target.tenants, {"the control secret": target.control_secret})
    audit.say("sending canaries")
    mine = await provoke(audit.client(0), canaries)
    await _knock(audit, canaries)
    theirs = await provoke(audit.client(1), Canaries())
    yield _errors(mine, theirs, needles)

    marks = _marks(audit)
    audit.say("collecting spans")
    yield _searched("traces", await spans(target, canaries), needles, marks)
    await places.settled(target.files)
    every = places.files(target.files)
    databases = [path for path in every if places.is_database(path)]
    logs = [path for path in every if path not in databases]
    audit.say(f"searching {len(every)} files")
    yield await abandonable(_searched, "logs", places.read(logs, since), needles, marks)
    yield await abandonable(_searched, "database", places.read(databases, since), needles, marks)
    yield _searched("metrics", [each async for each in places.metrics(target)], needles, marks)
    printed: list[Found] = []
    if target.operator is not None:
        name = target.tenants[0].id or target.tenants[0].name
        printed = [each async for each in places.commands(target.operator, target.model, name)]
    yield _searched("commands", printed, needles, marks)
    started: list[Found] = []
    if target.engine_pid is not None:
        try:
            started = list(places.processes(target.engine_pid))
        except AuditError:
            started = []
    yield _searched("processes", started, needles, marks | {b"python", b"vllm"})


async def _knock(audit: Audit, canaries: Canaries) -> None:
    """The same words at the engine's own port, without a ticket and with a wrong secret."""
    url = audit.target.engine_url
    if url is None:
        return
    body = {"model": audit.target.model, "prompt": canaries.prompt, "cache_salt": canaries.scope}
    headers = {"authorization": f"Bearer {canaries.credential}"}
    async with http_client(10) as http:
        for path in (f"/v1{COMPLETIONS}", f"/v1{CHAT}", USAGE):
            with suppress(httpx.HTTPError):
                await http.post(url.rstrip("/") + path, headers=headers, json=body)


def _marks(audit: Audit) -> set[bytes]:
    """What may stand in logs, databases and metrics, and shows that they are this server's."""
    target = audit.target
    names = {target.model, COMPLETIONS}
    for tenant in target.tenants:
        names |= {tenant.name, tenant.id, hex_id(tenant)}
    return {name.encode() for name in names if name}


def _errors(mine: Sequence[Received], theirs: Sequence[Received], needles: Needles) -> Check:
    leaks = {
        f"{name} in an answer to another tenant"
        for answer in theirs
        for name in needles.within(answer.content)
    }
    keys = needles.without(PROMPT, SCOPE, TOKEN_IDS)
    leaks |= {f"{name} in an answer" for each in mine for name in keys.within(each.content)}
    refused = [each for each in (*mine, *theirs) if each.status >= 400]
    leaks |= {
        f"{name} in the error that refuses it"  # which others log
        for each in mine
        if each.status >= 400
        for name in needles.within(each.content.partition(b"\n\n")[2])
    }
    told = sum(PROMPT in needles.within(each.content) for each in mine)
    return Check(
        "secrecy/errors",
        "G10",
        judge(bool(leaks), told > 0 and len(theirs) > 0),
        CLAIMS["errors"],
        _said(leaks, f"{len(mine)} answers to their sender and {len(theirs)} to another tenant"),
        {"answers": len(mine) + len(theirs), "refusals": len(refused)},
        f"{told} answers tell the sender words of its own prompt, and the search finds them there.",
        advice=ADVICE.format(place="an answer to somebody else"),
    )


def _searched(
    name: str, found: Iterable[Found], needles: Needles, marks: Collection[bytes]
) -> Check:
    leaks: set[str] = set()
    marked: list[str] = []
    missed: list[str] = []
    count, size = 0, 0
    for each in found:
        content = each.content or b""
        count, size = count + 1, size + len(content)
        leaks |= {f"{what} in {each.place}" for what in needles.within(content)}
        if each.content is None or not each.whole:
            missed.append(each.place)
        if each.fresh and any(mark in content for mark in marks):
            marked.append(each.place)
    if not count:
        why = f"Not run: {WANTING[name]}."
        return Check(f"secrecy/{name}", "G10", Verdict.NOT_TESTED, CLAIMS[name], why)
    spelled = sum(len(each) for each in needles.spellings.values())
    return Check(
        f"secrecy/{name}",
        "G10",
        judge(bool(leaks), bool(marked) and not missed),
        CLAIMS[name],
        _said(leaks, f"{count} places ({size / 1e6:.1f} MB)", missed),
        {"places": count, "bytes": size, "secrets": len(needles.spellings), "spellings": spelled},
        "What may stand there, such as a tenant's name, was found in what was written during the "
        f"run: {_some(marked) if marked else 'nowhere'}.",
        advice=ADVICE.format(place=name),
    )


def _said(leaks: Collection[str], where: str, missed: Sequence[str] = ()) -> str:
    said = f"Found: {'; '.join(sorted(leaks))}." if leaks else f"None of them is in {where}."
    return said + (f" Not read, or not as a whole: {_some(missed)}." if missed else "")


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


SUITE = Suite(
    "secrecy",
    "Do keys, tickets, prompts or scopes end up where others can read them?",
    ("G10",),
    run,
    share=1.0,
    least_s=10.0,
)
