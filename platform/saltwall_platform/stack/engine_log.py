"""What a starting engine is doing, and why it did not start, read off vLLM's log."""

import re
from typing import Final

STAGES: Final = (
    ("Resolved architecture", "reading the model's configuration"),
    ("Initializing a V1 LLM engine", "starting the engine core"),
    ("Starting to load model", "loading the weights"),
    ("Loading weights took", "measuring memory"),
    ("Warming up model", "warming up"),
    ("KV cache", "making the KV cache"),
    ("Starting vLLM server", "starting its HTTP server"),
    ("Application startup complete", "waiting for its policy"),
)
"""Texts in the order in which vLLM logs them, and what comes after each."""

ERROR: Final = re.compile(
    r"(?:^|\s)(?P<message>(?:\w+\.)*\w*(?:Error|Exception|Refused|Exit)\b: .+|.*: error: .+)$"
)
PREFIX: Final = re.compile(r"^\(\w+ pid=\d+\)\s*(?:[A-Z]+ [-\d]+ [:\d]+ \[[^\]]*\]\s?)?")
SUMMARY: Final = "Engine core initialization failed"


def stage(log: str) -> str:
    """What the engine is doing, from its log so far."""
    reached = "importing vLLM"
    for text, meaning in STAGES:
        if text in log:
            reached = meaning
    return reached


def cause(log: str) -> list[str]:
    """The lines that say why the engine stopped: the last error that is not a mere summary."""
    plain = [PREFIX.sub("", line).rstrip() for line in log.splitlines()]
    found = [
        index for index, line in enumerate(plain) if ERROR.search(line) and SUMMARY not in line
    ]
    if not found:
        return [line for line in plain if line][-5:]
    start = found[-1]
    # A refusal lists its reasons on the lines below, indented or as a list.
    end = start + 1
    while end < len(plain) and plain[end].startswith((" ", "-", "*")):
        end += 1
    return plain[start:end]
