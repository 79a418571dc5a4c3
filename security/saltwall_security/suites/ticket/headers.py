"""Headers: those of answers, which may tell load, and those of requests, which no seal covers."""

import re
import time
from collections.abc import Iterable, Mapping

import httpx

from saltwall_security.check import Check, judge
from saltwall_security.client import CHAT, COMPLETIONS, Answer, Client
from saltwall_security.recording import Recorded
from saltwall_security.running import Running
from saltwall_security.suite import Audit
from saltwall_security.suites.ticket.shots import Shot, fire

STREAM_TOKENS, STREAMS = 48, 3
IDLE, ROUNDS, BACK_WITHIN_S = 3, 3, 5.0
OK = 200
LOAD = re.compile(
    r"(^|[-_])(load|kv[-_]?cache|queued?|waiting|running|pending|requests|gpu|util(i[sz]ation)?)"
    r"([-_]|$)",
    re.IGNORECASE,
)
HARMLESS = re.compile(r"rate-?limit|^upgrade-insecure-requests$", re.IGNORECASE)
"""Headers that tell of the caller's own limits, and one that many servers send."""
OWN = frozenset({"date", "content-length", "x-request-id", "request-id", "set-cookie", "etag"})
"""Headers that say something of this answer alone."""
ASKED = ("TEXT", "JSON", "BIN")
Headers = Mapping[str, str]


async def check_load(audit: Audit) -> Check:
    """vLLM tells its load in headers to whoever asks for it; a gateway must not pass that on.

    What is called otherwise is found by its value, which changes while another tenant is busy.
    """
    spy, names, answered = audit.client(1), set[str](), 0
    for form in ASKED:
        for path in (COMPLETIONS, CHAT):
            answer = await _asked(spy, path, form)
            if answer is not None:
                answered += answer.ok
                names |= set(filter(tells, answer.headers))
    changing, once = await _changing(audit)
    names |= changing
    odd = (
        f" {', '.join(sorted(once))} changed beside a busy tenant, but not always." if once else ""
    )
    return Check(
        "ticket/load-headers",
        "G7",
        judge(bool(names), answered > 0),
        "No header of an answer tells a tenant how busy the engine is, even if it asks",
        f"Asked for load in {len(ASKED)} formats on two routes, idle and beside a busy tenant: "
        + (f"told in {', '.join(sorted(names))}." if names else "no such header came.")
        + odd,
        {"answers": answered, "headers": len(names)},
        f"{answered} of the requests were served.",
        advice="Pass on response headers by an allow-list." if names else "",
    )


async def _changing(audit: Audit) -> tuple[set[str], set[str]]:
    """Headers that the spy sees change whenever the victim is busy, and back again; and those that
    did once, but not each time."""
    spy = audit.client(1)
    idle = [await _shown(spy) for _ in range(IDLE)]
    usual = idle[0]
    names = _as_usual(usual, idle, _differing(usual, await _beside_busy(audit)))
    once = set(names)
    for _ in range(1, ROUNDS):
        if not names:
            break
        idle = await _idle_again(spy, usual, names)
        names = _as_usual(usual, idle, names & _differing(usual, await _beside_busy(audit)))
    return names, once - names


def _differing(usual: Headers, beside: Headers) -> set[str]:
    if not usual or not beside:
        return set()
    found = {name for name, value in beside.items() if usual.get(name) != value}
    return {name for name in found - OWN if not HARMLESS.search(name)}


def _as_usual(usual: Headers, idle: Iterable[Headers], names: set[str]) -> set[str]:
    return {name for name in names if all(each.get(name) == usual.get(name) for each in idle)}


async def _shown(spy: Client) -> Headers:
    """The headers of an answer; none if there was no answer."""
    answer = await _asked(spy, COMPLETIONS, ASKED[0])
    return answer.headers if answer is not None and answer.ok else {}


async def _beside_busy(audit: Audit) -> Headers:
    """What the spy is shown while the victim's streams run."""
    busy: list[Running] = []
    try:
        for _ in range(STREAMS):
            fields = {"max_tokens": STREAM_TOKENS, "ignore_eos": True, "prompt": audit.words(8)}
            busy.append(Running(audit.client(0).opened(COMPLETIONS, fields)))
        for each in busy:
            await each.began(30)
        return await _shown(audit.client(1))
    finally:
        for each in busy:
            await each.stop()


async def _idle_again(spy: Client, usual: Headers, names: set[str]) -> list[Headers]:
    """What it is shown once these are as usual, or should long be: streams end a while later."""
    until = time.monotonic() + BACK_WITHIN_S
    while time.monotonic() < until and _as_usual(usual, [await _shown(spy)], names) != names:
        pass
    return [await _shown(spy) for _ in range(IDLE)]


async def check_unsealed(audit: Audit, genuine: Recorded) -> Check:
    """A seal covers no headers, so those that come with a sealed request must change nothing."""
    chosen = f"audit-{audit.rng.randrange(16**12):012x}"
    added = {
        "x-request-id": chosen,
        "x-session-id": chosen,
        "endpoint-load-metrics-format": "TEXT",
        "x-data-parallel-rank": "0",
    }
    dressed = genuine
    for name, value in added.items():
        dressed = dressed.with_header(name, value)
    shots = [Shot("genuine", genuine), Shot("with headers", dressed)]
    plain, other = (hit.reply for hit in await fire(audit.target.engine_url or "", shots))
    shown = [name for name, _ in other.headers if tells(name)]
    taken = chosen.encode() in other.body
    told = f"took the id {'that was added' if taken else 'of the sealed request'}"
    return Check(
        "ticket/unsealed-headers",
        "G7",
        judge(taken or bool(shown), plain.status == OK),
        "Headers that are added to a sealed request change nothing at the engine",
        f"With {len(added)} headers added the engine answered {other.status or other.trouble}, "
        f"{told}, and showed {len(shown)} headers about its load.",
        {"took_added_id": taken, "load_headers": len(shown)},
        f"Without them it answered {plain.status or plain.trouble}.",
        advice="Let the engine drop the headers of sealed requests." if taken or shown else "",
    )


async def _asked(client: Client, path: str, form: str) -> Answer | None:
    said = {"messages": [{"role": "user", "content": "Salt."}]}
    fields = said if path == CHAT else {"prompt": "Salt."}
    try:
        return await client.ask(
            path, {**fields, "max_tokens": 1}, {"endpoint-load-metrics-format": form}
        )
    except httpx.HTTPError:
        return None


def tells(name: str) -> bool:
    """Whether a header of this name is about load."""
    return bool(LOAD.search(name)) and not HARMLESS.search(name)
