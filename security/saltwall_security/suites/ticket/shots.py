"""Requests fired at a port, and what came back."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from saltwall_security.abandonable import abandonable
from saltwall_security.check import Check, Verdict, judge
from saltwall_security.raw_http import Reply, Wire
from saltwall_security.recording import Recorded

TIMEOUT_S = 15.0
REFUSALS = frozenset({401, 403, 404, 405, 411, 413, 414, 415, 426, 431, 501})
"""Answers of one who has not looked at the request itself."""
LOOKED_AT = frozenset({400, 422})
"""Answers of one who has read it first."""
NOT_READY = 503


@dataclass(frozen=True)
class Shot:
    """One request to fire.

    Args:
        kind: what is wrong with it, in a few words: shots of one kind are counted together.
        declared: the Content-Length to claim (bytes).
    """

    kind: str
    request: Recorded = field(repr=False)
    declared: int | None = None


@dataclass(frozen=True)
class Hit:
    """A shot and its answer."""

    shot: Shot
    reply: Reply

    @property
    def accepted(self) -> bool:
        """Whether the server did something for it, or owns to having such a route."""
        status, method = self.reply.status, self.shot.request.method
        if status is None:
            return False
        return status < 300 or status in LOOKED_AT or (method == "OPTIONS" and status == 405)

    @property
    def broke(self) -> bool:
        """Whether the server failed, hung or went away over it."""
        status = self.reply.status
        return status is None or (status >= 500 and status not in (NOT_READY, 501))


async def fire(url: str, shots: Sequence[Shot], timeout_s: float = TIMEOUT_S) -> Sequence[Hit]:
    """Fires them one after the other, over one connection as long as it lives.

    What is not answered is fired once more: a busy server is not a broken one.
    """

    def all_of_them() -> list[Hit]:
        with Wire(url, timeout_s) as wire:

            def shoot(shot: Shot) -> Reply:
                request = shot.request
                return wire.send(
                    request.method,
                    request.path,
                    request.headers,
                    request.body or None,
                    declared=shot.declared,
                )

            first = ((shot, shoot(shot)) for shot in shots)
            return [
                Hit(shot, reply if reply.status is not None else shoot(shot))
                for shot, reply in first
            ]

    return await abandonable(all_of_them)


def refused(
    name: str,
    claim: str,
    hits: Sequence[Hit],
    control: tuple[bool, str],
    *,
    malformed: bool = False,
    advice: str = "",
) -> Check:
    """A check that all of them were refused, and nothing broke.

    Args:
        control: whether an honest request was served beside them, and what was seen of it.
        malformed: they are no sound requests, so that a refusal may come from reading them.
    """
    served = [hit for hit in hits if hit.accepted and not (malformed and _read(hit))]
    broke = [hit for hit in hits if hit.broke]
    unready = sum(hit.reply.status == NOT_READY for hit in hits)
    verdict = judge(bool(served or broke), control[0] and bool(hits) and not unready)
    return Check(
        f"ticket/{name}",
        "G7",
        verdict,
        claim,
        _seen(hits, served, broke, unready),
        {
            "requests": len(hits),
            "accepted": len(served),
            "broke_or_hung": len(broke),
            "not_ready": unready,
        },
        control[1],
        table=_table(hits),
        advice=advice if verdict is Verdict.FAILED else "",
    )


def _read(hit: Hit) -> bool:
    return hit.reply.status in LOOKED_AT


def _seen(hits: Sequence[Hit], served: Sequence[Hit], broke: Sequence[Hit], unready: int) -> str:
    fine = len(hits) - len(served) - len(broke) - unready
    parts = [f"{fine} of {len(hits)} requests were refused"]
    for some, told in ((served, "accepted or acted upon"), (broke, "broke the server or hung")):
        if some:
            examples = ", ".join(
                f"{kind} ({answer})" for (kind, answer), _ in _count(some).most_common(6)
            )
            parts.append(f"{len(some)} {told}: {examples}")
    if unready:
        parts.append(f"{unready} were answered that the engine is not ready")
    return "; ".join(parts) + "."


def _count(hits: Sequence[Hit]) -> Counter[tuple[str, str]]:
    return Counter((hit.shot.kind, str(hit.reply.status or hit.reply.trouble)) for hit in hits)


def _table(hits: Sequence[Hit]) -> Sequence[Mapping[str, float | int | str | None]]:
    return [
        {"attack": kind, "answer": answer, "requests": number}
        for (kind, answer), number in _count(hits).items()
    ]
