"""Speed and strength of vLLM's block hashes side by side, for whoever has to choose one."""

from collections.abc import Mapping, Sequence

from saltwall_security.check import Check, Verdict
from saltwall_security.collision.weak import Crafted

_STRENGTH = {
    "sha256": (256, "2^128; of pickles, so only one Python version's hashes agree"),
    "sha256_cbor": (256, "2^128; the same in every language"),
    "xxhash": (128, "none: made at will in blocks of 80 tokens and more"),
    "xxhash_cbor": (128, "none: made at will in blocks of 80 tokens and more"),
}


def speed(timed: Mapping[str, float | None] | None, crafted: Sequence[Crafted]) -> Check:
    """A table; nothing fails with it."""
    made = {pair.algorithm for pair in crafted}
    table = [
        {
            "algorithm": name,
            "digest_bits": bits,
            "us_per_16_token_block": None if not timed or timed[name] is None else timed[name],
            "cost_of_a_collision": cost,
            "for_several_tenants": "yes" if bits == 256 else "no",
        }
        for name, (bits, cost) in _STRENGTH.items()
    ]
    figures = {f"{name}_us": us for name, us in (timed or {}).items() if us is not None}
    slow, fast = figures.get("sha256_cbor_us"), figures.get("xxhash_cbor_us")
    said = (
        f"A block of 16 tokens takes {slow:.1f} µs with sha256_cbor"
        + (f", {slow - fast:.1f} more than with xxhash_cbor" if fast else "")
        if slow
        else "Not measured: vLLM is not installed here"
    )
    return Check(
        "collision/speed",
        None,
        Verdict.HELD if figures else Verdict.NOT_TESTED,
        "What a block hash costs is known, beside what a collision costs",
        f"{said}; collisions were made here under {', '.join(sorted(made)) or 'none'}.",
        figures,
        table=table,
    )
