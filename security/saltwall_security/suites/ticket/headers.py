"""Headers: those of answers, which may tell load, and those of requests, which no seal covers."""

import re

import httpx

from saltwall_security.check import Check, judge
from saltwall_security.client import CHAT, COMPLETIONS, Answer, Client
from saltwall_security.recording import Recorded
from saltwall_security.running import Running
from saltwall_security.suite import Audit
from saltwall_security.suites.ticket.shots import Shot, fire

STREAM_TOKENS, STREAMS = 48, 3
OK = 200
LOAD = re.compile(
    r"load|kv.?cache|queue|waiting|running|pending|requests|gpu|util|engine", re.IGNORECASE
)
LIMITS = "x-ratelimit"
"""Headers that begin so tell of the caller's own limits (OpenAI's API)."""
OWN = frozenset({"date", "content-length", "x-request-id", "request-id", "set-cookie", "etag"})
"""Headers that say something of this answer alone."""
ASKED = ("TEXT", "JSON", "BIN")


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
                names |= set(filter(_tells, answer.headers))
    names |= await _changing(audit)
    return Check(
        "ticket/load-headers",
        "G7",
        judge(bool(names), answered > 0),
        "No header of an answer tells a tenant how busy the engine is, even if it asks",
        f"Asked for load in {len(ASKED)} formats on two routes, idle and beside a busy tenant: "
        + (f"told in {', '.join(sorted(names))}." if names else "no such header came."),
        {"answers": answered, "headers": len(names)},
        f"{answered} of the requests were served.",
        advice="Pass on response headers by an allow-list." if names else "",
    )


async def _changing(audit: Audit) -> set[str]:
    """Headers that stay the same for the spy, until the victim is busy."""
    victim, spy = audit.client(0), audit.client(1)
    asked = [await _asked(spy, COMPLETIONS, ASKED[0]) for _ in range(3)]
    idle = [answer.headers for answer in asked if answer is not None and answer.ok]
    busy = []
    try:
        for _ in range(STREAMS):
            fields = {"max_tokens": STREAM_TOKENS, "ignore_eos": True, "prompt": audit.words(8)}
            busy.append(Running(victim.opened(COMPLETIONS, fields)))
        for each in busy:
            await each.began(30)
        beside = await _asked(spy, COMPLETIONS, ASKED[0])
    finally:
        for each in busy:
            await each.stop()
    if beside is None or not beside.ok or not idle:
        return set()
    return {
        name
        for name, value in beside.headers.items()
        if name not in OWN
        and not name.startswith(LIMITS)
        and len({headers.get(name) for headers in idle}) == 1
        and idle[0].get(name) != value
    }


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
    shown = [name for name, _ in other.headers if _tells(name)]
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


def _tells(name: str) -> bool:
    return bool(LOAD.search(name)) and not name.lower().startswith(LIMITS)
