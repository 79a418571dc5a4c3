"""What was not attacked, and why."""

from collections.abc import Sequence

from saltwall_security.check import Check, Verdict
from saltwall_security.suites.eviction.strategies import Strategy


def not_reached(strategies: Sequence[Strategy]) -> Check:
    """The attacks that there was no time for."""
    names = ", ".join(strategy.name for strategy in strategies)
    return Check(
        "eviction/not-reached",
        None,
        Verdict.NOT_TESTED,
        "Further attacks by eviction are made.",
        f"There was no time for {names}: --budget 15m makes all.",
    )


def not_shown(repeat: int | None) -> Check:
    """There is no hit rate to watch."""
    why = (
        "The server does not say how many tokens of a prompt were cached"
        " (on vLLM: --enable-prompt-tokens-details)."
        if repeat is None
        else "A prompt that was just sent is not found cached: there is no prefix cache to attack."
    )
    claim = "A flood evicts nothing that a tenant has cached within its reserve."
    return Check("eviction/hit-rate", "G4", Verdict.NOT_TESTED, claim, why)
