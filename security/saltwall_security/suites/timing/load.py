"""What a tenant's load does to others: a channel that stays, measured to say how wide it is."""

import asyncio
from dataclasses import dataclass, field

from saltwall_security.client import Answer
from saltwall_security.prober import Prober
from saltwall_security.suite import Audit

PART_OF_TIME = 0.15
PAIRS = 10
TOKENS = 8
SHORT_WORDS = 4


@dataclass(frozen=True)
class Channel:
    """Seconds that the spy waits while the victim's prompt is cached, or fresh."""

    cached: list[float] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Load:
    """Both ways in which the spy notices.

    Args:
        gaps: the longest time between two tokens of a generation of its own.
        queue: the time to the first token of a short prompt sent just after the victim's.
    """

    gaps: Channel = field(default_factory=Channel)
    queue: Channel = field(default_factory=Channel)


async def measure_load(audit: Audit, probe: Prober, words: int, load: Load) -> None:
    """Fills in pairs of a cached and a fresh prompt of the victim's, in random order, in time.

    Raises:
        Refused: the target does not answer so many requests at once.
    """
    cached = audit.words(words)
    began_s = audit.left_s
    await probe(audit.client(0), cached)
    for done in range(PAIRS):
        if audit.left_s < (began_s - audit.left_s) / (done + 1):
            return
        fresh = audit.words(words)
        turns = [(cached, load.gaps.cached, load.queue.cached)]
        turns.append((fresh, load.gaps.fresh, load.queue.fresh))
        audit.rng.shuffle(turns)
        taken = [
            (await _beside(audit, probe, prompt), gaps, queue) for prompt, gaps, queue in turns
        ]
        for (stream, short), gaps, queue in taken:  # together, so that a refusal leaves whole pairs
            gaps.append(max(stream.gaps_s, default=0.0))
            queue.append(short.ttft_s)
        cached = fresh
        audit.say(f"{done + 1} of {PAIRS} looks at the victim's load")


async def _beside(audit: Audit, probe: Prober, prompt: str) -> tuple[Answer, Answer]:
    """The spy's generation, and its short prompt, while the victim's prompt is computed."""
    spy = audit.client(1)
    answers = await asyncio.gather(
        probe(spy, audit.words(SHORT_WORDS), max_tokens=TOKENS),
        probe(audit.client(0), prompt),
        probe(spy, audit.words(SHORT_WORDS)),
        return_exceptions=True,
    )
    stream, _, short = (_raised(answer) for answer in answers)
    return stream, short


def _raised(answer: Answer | BaseException) -> Answer:
    if isinstance(answer, BaseException):
        raise answer
    return answer
