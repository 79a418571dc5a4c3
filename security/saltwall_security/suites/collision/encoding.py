"""Whether two different blocks can have one encoding: then no hash could keep them apart."""

import random

from saltwall_security.check import Check, judge
from saltwall_security.collision import injectivity
from saltwall_security.suite import Audit

BLOCKS_PER_S = 4000
_UNFRAMED_BLOCKS = 20_000


def encoding(audit: Audit) -> Check:
    """Searches for them, reads encodings back, and searches an encoding that has such blocks."""
    blocks = int(BLOCKS_PER_S * min(max(audit.seconds, 5.0), 120.0))
    ends = audit.left_s - audit.seconds / 4

    def lasts() -> bool:
        return audit.left_s > ends

    rng = random.Random(f"{audit.seed}/encoding")  # noqa: S311  # reproducible, and guards nothing
    control = injectivity.search(injectivity.unframed, rng, _UNFRAMED_BLOCKS, lasts)
    search = injectivity.search(injectivity.framed, rng, blocks, lasts)
    unread = injectivity.unreadable(rng, blocks, lasts)
    complete = search.kinds == set(injectivity.KINDS) and control.found is not None
    return Check(
        "collision/encoding",
        "G8",
        judge(search.found is not None or unread is not None, complete),
        "No two blocks have one encoding: parent, tokens and keys of every kind are told apart",
        f"Of {search.tried} different blocks and their neighbours, with keys of "
        f"{len(search.kinds)} kinds, "
        + ("two have one encoding" if search.found else "no two have one encoding")
        + (", and one is not read back from its own." if unread else ", and each is read back."),
        {"blocks": search.tried, "kinds": len(search.kinds), "control_blocks": control.tried},
        control=f"Where the same parts are merely put in a row, {control.tried} blocks are enough."
        if control.found
        else "In an encoding without framing no two were found.",
        advice="Encode block hashes canonically, with every key tagged and framed.",
    )
