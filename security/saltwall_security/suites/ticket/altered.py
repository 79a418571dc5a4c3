"""What can be done to a genuine request without its keys."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from saltwall_security.recording import Recorded
from saltwall_security.suites.ticket.shots import Shot
from saltwall_security.suites.ticket.spied import SEAL_HEADER, ticket_of

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
VERSION_CHARS = 4
REGIONS = (
    ("version", 0, 4),
    ("key id", 4, 6),
    ("nonce", 6, 22),
    ("sealed tenant", 22, 43),
    ("sealed generation and salt", 43, 92),
    ("sealed time and tag", 92, 118),
)
"""Of the ticket's 118 characters (DESIGN 3.2); borders rounded to characters."""
BODIES = (b"", b"{", b"null", b"[]", b"\x00", b"{" * 100_000, b"[" * 50_000 + b"]" * 50_000)


def altered(genuine: Recorded, rng: random.Random) -> Sequence[Shot]:
    """One bit wrong, anywhere in ticket or seal; cut short; made up; twice."""
    ticket, seal = ticket_of(genuine), genuine.header(SEAL_HEADER)
    shots = []
    for region, start, end in REGIONS:
        for at in range(start, min(end, len(ticket))):
            flipped = _flipped(ticket, at, rng.randrange(6))
            shots.append(Shot(f"a bit of the ticket: {region}", with_ticket(genuine, flipped)))
    # The last characters have bits that say nothing: another spelling of the same bytes.
    for bit in range(6):
        last = _flipped(ticket, len(ticket) - 1, bit)
        shots.append(Shot("the ticket's last character", with_ticket(genuine, last)))
        last = _flipped(seal, len(seal) - 1, bit)
        shots.append(Shot("the seal's last character", genuine.with_header(SEAL_HEADER, last)))
    for at in range(len(seal)):
        flipped = _flipped(seal, at, rng.randrange(6))
        shots.append(Shot("a bit of the seal", genuine.with_header(SEAL_HEADER, flipped)))
    return [*shots, *_cut(genuine, ticket, seal), *_made_up(genuine, rng)]


def _cut(genuine: Recorded, ticket: str, seal: str) -> Iterator[Shot]:
    for text in (ticket[:-1], ticket[: len(ticket) // 2], ticket[:VERSION_CHARS], "sw1", ""):
        yield Shot("the ticket cut", with_ticket(genuine, text))
    for text in (ticket + "A", ticket + "=", f" {ticket}", f"{ticket} ", ticket + ticket):
        yield Shot("the ticket lengthened", with_ticket(genuine, text))
    for text in (seal[:-1], seal[: len(seal) // 2], seal[:8], seal[:1], ""):
        yield Shot("the seal cut", genuine.with_header(SEAL_HEADER, text))
    for text in (seal + "A", seal + "=", seal + seal):
        yield Shot("the seal lengthened", genuine.with_header(SEAL_HEADER, text))
    yield Shot("no seal", genuine.with_header(SEAL_HEADER, None))
    for extra in (seal, "A" * len(seal)):
        yield Shot("two seals", replace(genuine, headers=(*genuine.headers, (SEAL_HEADER, extra))))


def _made_up(genuine: Recorded, rng: random.Random) -> Iterator[Shot]:
    ticket, seal = ticket_of(genuine), genuine.header(SEAL_HEADER)
    for version in ("sw0.", "sw2.", "SW1.", "sw1_"):
        yield Shot("another version", with_ticket(genuine, version + ticket[VERSION_CHARS:]))
    for _ in range(3):
        forged = "sw1." + _random(rng, len(ticket) - VERSION_CHARS)
        yield Shot("a made-up ticket", with_ticket(genuine, forged))
        both = with_ticket(genuine, forged).with_header(SEAL_HEADER, _random(rng, len(seal)))
        yield Shot("ticket and seal made up", both)
        yield Shot("a made-up seal", genuine.with_header(SEAL_HEADER, _random(rng, len(seal))))


def moved(genuine: Recorded, other: Recorded) -> Sequence[Shot]:
    """Ticket and seal of one request on another: body, path, query, method, model, tenant.

    Args:
        other: another tenant's genuine request.
    """
    fields = json.loads(genuine.body)
    ticket, theirs = ticket_of(genuine), ticket_of(other)

    def body(**change: object) -> Recorded:
        text = json.dumps({**fields, **change}, ensure_ascii=False, separators=(",", ":"))
        return genuine.with_body(text.encode())

    shots = [
        Shot("another body: more tokens", body(max_tokens=2)),
        Shot("another body: another prompt", body(prompt="Say something else.")),
        Shot("another body: a further field", body(n=1)),
        Shot("another body: another request id", body(request_id="0" * 32)),
        Shot("another body: one byte more", genuine.with_body(genuine.body + b" ")),
        Shot("another body: one byte less", genuine.with_body(genuine.body[:-1])),
        Shot("another body: a second object", genuine.with_body(genuine.body + genuine.body)),
        Shot("another body: only the ticket", body_of_ticket(genuine)),
        Shot("another model", body(model="another-model")),
        Shot("another tenant's seal", genuine.with_header(SEAL_HEADER, other.header(SEAL_HEADER))),
        Shot("the ticket in another tenant's request", with_ticket(other, ticket)),
        Shot("another tenant's ticket in the request", with_ticket(genuine, theirs)),
        Shot(
            "another tenant's ticket and seal in the request",
            with_ticket(genuine, theirs).with_header(SEAL_HEADER, other.header(SEAL_HEADER)),
        ),
    ]
    for path in (
        "/v1/chat/completions",
        "/v1/embeddings",
        "/v1/responses",
        "/v1/messages",
        f"/{genuine.path}",
        f"{genuine.path}/",
        f"{genuine.path}?a=1",
        genuine.path.upper(),
    ):
        shots.append(Shot("another path or query", replace(genuine, path=path)))
    for method in ("PUT", "PATCH", "GET", "DELETE"):
        shots.append(Shot("another method", replace(genuine, method=method)))
    return shots


def malformed(genuine: Recorded, rng: random.Random) -> Sequence[Shot]:
    """A genuine seal over what is no sound request: in `cache_salt`, and as a whole."""
    ticket = json.dumps(ticket_of(genuine)).encode()
    salts = (
        b'""',
        b"null",
        b"7",
        b"true",
        b"[]",
        b'{"a":"b"}',
        b'"' + b"x" * 1_000_000 + b'"',
        b'"\\u0000"',
        b'"\x00"',
        b'"\xff\xfe"',
        b'"' + b"A" * 118 + b'"',
        b"[" * 50_000 + b"]" * 50_000,
        b'"sw1.' + b"A" * 114 + b'","cache_salt":"mine"',
        ticket + b',"cache_salt":' + ticket,
    )
    bodies = [genuine.body.replace(ticket, salt, 1) for salt in salts]
    shots = [Shot("a malformed cache_salt", genuine.with_body(body)) for body in bodies]
    shots += [Shot("a malformed body", genuine.with_body(body)) for body in BODIES]
    return [*shots, Shot("a body of noise", genuine.with_body(rng.randbytes(4096)))]


def with_ticket(request: Recorded, ticket: str) -> Recorded:
    """The same request with another ticket in the place of its own."""
    own = ticket_of(request)
    return request.with_body(request.body.replace(own.encode(), ticket.encode(), 1))


def body_of_ticket(request: Recorded) -> Recorded:
    """A body that holds nothing else."""
    return request.with_body(json.dumps({"cache_salt": ticket_of(request)}).encode())


def _flipped(text: str, at: int, bit: int) -> str:
    """One bit of one base64url character, or of any other character its lowest."""
    found = _ALPHABET.find(text[at])
    char = _ALPHABET[found ^ (1 << bit)] if found >= 0 else chr(ord(text[at]) ^ 1)
    return text[:at] + char + text[at + 1 :]


def _random(rng: random.Random, chars: int) -> str:
    return "".join(rng.choice(_ALPHABET) for _ in range(chars))
