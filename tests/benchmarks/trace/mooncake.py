"""Reads the request trace that Mooncake published (README.md, beside this file)."""

import gzip
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

BLOCK = 512  # tokens in one of the trace's blocks
TRACE = Path(__file__).with_name("mooncake_conversation.jsonl.gz")


class Call(NamedTuple):
    """One request of the trace; `blocks` names the prompt's blocks, the last perhaps partial."""

    at: float  # seconds since the trace began
    input_length: int  # tokens
    output_length: int  # tokens
    blocks: tuple[int, ...]

    @property
    def conversation(self) -> int:
        """What every request of one conversation shares: all of them share block 0, the preamble.

        A prompt of the preamble alone belongs to nobody in particular; the trace has none.
        """
        return self.blocks[min(1, len(self.blocks) - 1)]


def read(limit: int | None = None, path: Path = TRACE) -> list[Call]:
    """The trace's first `limit` requests, or all, in order of arrival."""
    with gzip.open(path, "rt") as lines:
        rows = [json.loads(line) for line in islice(lines, limit)]
    return [
        Call(
            row["timestamp"] / 1000,
            row["input_length"],
            row["output_length"],
            tuple(row["hash_ids"]),
        )
        for row in rows
    ]


def footprint(calls: Sequence[Call]) -> int:
    """Distinct blocks in the prompts: the size of a pool that never evicts one of them."""
    return len({block for call in calls for block in call.blocks})
