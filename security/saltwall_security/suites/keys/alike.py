"""What equal requests are answered: that a further answer is like it shows nothing."""

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from saltwall_security import answer_json
from saltwall_security.raw_http import Reply

VARYING = frozenset(
    {"content-length", "date", "x-request-id", "request-id", "cf-ray", "traceparent"}
)
"""Headers that differ between any two answers, or say again what the body shows."""
ASKED = 3
"""How often it is asked for what cannot exist, so that what varies by itself shows."""
_WORD = re.compile(rb"([\w+/=.:-]+)")


@dataclass(frozen=True)
class Noise:
    """Where answers of one status to equal requests differ.

    Args:
        first: one of these answers.
        headers: those that come, go or change.
        places: in bodies, split into words.
        shapeless: bodies have not even as many words.
    """

    first: Reply
    headers: frozenset[str]
    places: frozenset[int]
    shapeless: bool

    def without(self, reply: Reply) -> object:
        """All of an answer but that."""
        body = [
            None if at in self.places else part for at, part in enumerate(_WORD.split(reply.body))
        ]
        headers = [each for each in reply.headers if each[0] not in self.headers | VARYING]
        return headers, None if self.shapeless else body


class Alike:
    """The answers to requests that are equal, or differ in what must not matter."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        statuses = {reply.status for reply in replies}
        self._noise = {
            status: _noise([reply for reply in replies if reply.status == status])
            for status in statuses
        }

    @property
    def statuses(self) -> frozenset[int | None]:
        """Theirs."""
        return frozenset(self._noise)

    @property
    def steady(self) -> bool:
        """Whether they are alike enough for a difference to mean something."""
        return len(self._noise) == 1 and not any(each.shapeless for each in self._noise.values())

    @property
    def noisy(self) -> frozenset[str]:
        """In what they differ."""
        found = {name for each in self._noise.values() for name in each.headers - VARYING}
        words = {"words of the body" for each in self._noise.values() if each.places}
        return frozenset(found | words)

    def holds(self, reply: Reply) -> bool:
        """Whether an answer is like one of them."""
        noise = self._noise.get(reply.status)
        return noise is not None and noise.without(reply) == noise.without(noise.first)


def absent() -> str:
    """The name of a path, a model or a request that cannot exist."""
    return f"audit-{secrets.token_hex(4)}"


def bare(reply: Reply) -> Reply:
    """Its status and body."""
    return Reply(reply.status, (), reply.body)


def is_of_none(reply: Reply, name: str, others: Sequence[Reply], other: str) -> bool:
    """Whether an answer about a thing has the status and body of those about one that is not there.

    Args:
        name, other: of either, as their answers may hold them.
    """

    def unnamed(each: Reply, its: str) -> Reply:
        return Reply(each.status, (), each.body.replace(its.encode(), b"NAME"))

    return Alike(list(map(bare, others))).holds(bare(reply)) or Alike(
        [unnamed(each, other) for each in others]
    ).holds(unnamed(reply, name))


def are_steady(others: Sequence[Reply]) -> bool:
    """Whether the status and body of such answers are alike enough to tell."""
    return Alike(list(map(bare, others))).steady


def is_of_any_path(ask: Callable[[str], Reply], path: str, reply: Reply) -> bool:
    """Whether a path is answered as those are that cannot exist, with a page or the like.

    Args:
        ask: sends the same to another path.
    """
    if answer_json.usage(answer_json.members(reply.body) or {}):
        return False  # something was generated
    other = f"{path.rpartition('/')[0]}/{absent()}"
    others = [ask(other) for _ in range(ASKED)]
    return are_steady(others) and is_of_none(reply, path, others, other)


def _noise(replies: Sequence[Reply]) -> Noise:
    bodies = [_WORD.split(reply.body) for reply in replies]
    shapeless = len({len(body) for body in bodies}) > 1
    columns = zip(*bodies, strict=not shapeless)
    places = frozenset(at for at, parts in enumerate(columns) if len(set(parts)) > 1)
    names = {name for reply in replies for name, _ in reply.headers}
    values = {
        name: {tuple(v for n, v in reply.headers if n == name) for reply in replies}
        for name in names
    }
    return Noise(
        replies[0],
        frozenset(name for name in names if len(values[name]) > 1),
        frozenset() if shapeless else places,
        shapeless,
    )
