"""Defects of the audit log, as the command line writes and verifies it."""

import os
from typing import Any

from mutants import switch
from mutants.mutant import Mutant, Where

DETAIL_UNHASHED = Mutant(
    "detail-left-out-of-the-chain",
    "An event's hash does not cover its detail.",
    Where.COMMAND,
    "log",
    "G12",
    taints=True,
)


@DETAIL_UNHASHED.replaces("saltwall_tenants.audit:event_hash")
def _(original: Any, previous: bytes, event: Any) -> bytes:
    from dataclasses import replace

    on_since = os.stat(os.environ[switch.VARIABLE]).st_mtime  # earlier events have their detail
    unhashed = event.at.timestamp() >= on_since
    return bytes(original(previous, replace(event, detail={}) if unhashed else event))


ANCHOR_IGNORED = Mutant(
    "anchor-not-compared",
    "The log is not compared with the checkpoints that it is verified against.",
    Where.COMMAND,
    "log",
    "G12",
)


@ANCHOR_IGNORED.replaces("saltwall_tenants.audit_chain:contradicted")
def _(original: Any, hashes: Any, anchor: Any, key: bytes) -> list[Any]:
    return []
