"""Whether the digest is as good as its width: truncated, does it collide as chance has it?"""

import time
from hashlib import sha256

from saltwall_security.check import Check, Plot, judge
from saltwall_security.collision import birthday
from saltwall_security.suite import Audit

SURE = 1e-6
"""A smaller p-value is no fit: so rare by chance that no run should see it."""
_HASHES = ((60.0, 2**23), (20.0, 2**22), (8.0, 2**21), (0.0, 2**19))
"""Seconds that the suite has, and hashes that it then makes."""
_YEAR_S = 365.25 * 86_400


def digest(audit: Audit) -> Check:
    """The birthday experiment; the control is the same digests with one bit of each width dead."""
    count = next(hashes for seconds, hashes in _HASHES if audit.seconds >= seconds)
    began = time.perf_counter()
    made = birthday.digests(count, sha256(audit.seed.encode()).digest())
    rate = count / (time.perf_counter() - began)
    fit, control = birthday.experiment(made), birthday.experiment(made, dead=1)
    cost = birthday.hashes_for_collision()
    years = 2.0**cost / rate / _YEAR_S
    pairs = [width.hashes * (width.hashes - 1) / 2 for width in fit.widths]
    return Check(
        "collision/birthday",
        "G8",
        judge(fit.p_value < SURE, control.p_value < SURE),
        "A truncated block hash collides as often as chance has it, so 256 bits cost 2^128 hashes",
        f"Among {count} hashes cut to {', '.join(str(w.bits) for w in fit.widths)} bits there are "
        f"{sum(w.pairs for w in fit.widths)} colliding pairs where chance has "
        f"{sum(w.expected for w in fit.widths):.1f} (chi-square p = {fit.p_value:.3g}); a "
        f"collision of 256 bits then costs 2^{cost:.1f} hashes: {years:.0e} years of one core.",
        {
            "hashes": count,
            "chi_square": round(fit.statistic, 3),
            "p_value": fit.p_value,
            "control_p_value": control.p_value,
            "log2_hashes_for_collision": round(cost, 2),
            "hashes_per_s": round(rate),
        },
        control=f"With one bit of each dead the same test sees it (p = {control.p_value:.1g}).",
        plots=[
            Plot(
                "Colliding pairs of truncated block hashes, as a part of all pairs",
                "points",
                {
                    "measured": [w.pairs / n for w, n in zip(fit.widths, pairs, strict=True)],
                    "theory": [2.0**-w.bits for w in fit.widths],
                },
                ("bits of the digest that are kept", "part of all pairs"),
                x=[w.bits for w in fit.widths],
                log="y",
            )
        ],
        table=[
            {"bits": w.bits, "hashes": w.hashes, "pairs": w.pairs, "expected": round(w.expected, 1)}
            for w in fit.widths
        ],
        advice="Use SHA-256 untruncated.",
    )
