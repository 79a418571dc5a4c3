"""The guarantees that an audit tries to disprove."""

from collections.abc import Mapping, Sequence
from typing import Final

GUARANTEES: Final[Mapping[str, str]] = {
    "G1": "no tenant ever hits what another has cached",
    "G2": "what others have cached does not show in time",
    "G3": "a prompt cannot be recovered by probing the cache",
    "G4": "nobody evicts what a tenant has within its reserve",
    "G5": "a strict tenant's hits and evictions do not depend on others",
    "G6": "nobody starves a tenant",
    "G7": "a ticket cannot be forged, moved, left out, or used after revocation",
    "G8": "block hashes are collision-free in practice, and their encoding is injective",
    "G9": "rotation and deletion make old KV unreachable, and erase it",
    "G10": "secrets appear in no log, trace, metric, event, error or database file",
    "G11": "accounting returns to zero",
    "G12": "administrative acts are complete and tamper-evident",
}

ESSENTIAL: Final[Mapping[str, Sequence[str]]] = {
    "G7": ("ticket/strangers", "ticket/moved", "ticket/standing"),
    "G9": ("rotation/unreachable", "rotation/erased"),
    "G10": ("secrecy/logs", "secrecy/metrics", "secrecy/database"),
    "G12": ("log/complete", "log/edited", "log/truncated"),
}
"""Guarantees of several parts, with the checks that stand for these.

Where one of them was not tested, a guarantee that held has held in part.
"""
