"""G3: whether a prompt of somebody else's can be rebuilt by guessing.

A thief guesses, word by word, what a victim has filled into a form, and reads from `cached_tokens`
or from the clock which guess was right. The control is the same thief against a secret of its own:
that it must recover.
"""

from collections.abc import AsyncIterator, Sequence

from saltwall_security.check import Check, Verdict, judge
from saltwall_security.prober import Prober
from saltwall_security.suite import Audit, Suite
from saltwall_security.suites.recovery.attacker import Theft, Thief, beyond_chance
from saltwall_security.suites.recovery.oracle import Oracle, by_count, by_time
from saltwall_security.suites.recovery.template import DICTIONARY, SECRET_WORDS

CLAIM = "Guessing recovers no words of a prompt that another tenant has cached, beyond chance"
ADVICE = (
    "Make a secret of each tenant's own part of the hash of every cached block. Hiding "
    "`cached_tokens` slows the thief down, and does not stop it: it uses the clock."
)
CONTROL_PART = 0.5
"""Of the time that is left for both, what is kept for the control."""


async def run(audit: Audit) -> AsyncIterator[Check]:
    """The attack, then its control, with the sharpest instrument that the target offers."""
    probe = Prober()
    victim, spy = audit.client(0), audit.client(1)
    audit.say("learning to tell a right guess from a wrong one")
    oracle = await by_count(audit, probe, spy) or await by_time(audit, probe, spy)
    if oracle is None:
        yield Check(
            "recovery/words",
            "G3",
            Verdict.INCONCLUSIVE,
            CLAIM,
            "The thief cannot tell by `cached_tokens` nor by the clock which of its own prompts "
            "are cached: nothing is cached, or there is too much noise for the time.",
        )
        return
    secret, own = (tuple(audit.rng.choices(DICTIONARY, k=SECRET_WORDS)) for _ in range(2))
    audit.say(f"guessing another tenant's words, by {oracle.sees}")
    attack = await Thief(audit, probe, oracle, victim, spy).steal(
        secret, CONTROL_PART * audit.left_s
    )
    audit.say(f"guessing its own words, by {oracle.sees}")
    control = await Thief(audit, probe, oracle, spy, spy).steal(own, 0.0)
    yield _check(oracle, attack, attack.right(secret), control, control.right(own))


def _check(oracle: Oracle, attack: Theft, found: int, control: Theft, control_found: int) -> Check:
    leak = beyond_chance(oracle, found)
    # A count that misses a word of the thief's own may have missed the victim's as well.
    able = control_found == SECRET_WORDS or (
        not oracle.counts and beyond_chance(oracle, control_found)
    )
    able = able and attack.ended
    guesses = sum(attack.probes)
    seen = (
        f"{found} of {SECRET_WORDS} words recovered by {oracle.sees}, each of a dictionary of "
        f"{len(DICTIONARY)}, with {guesses} guesses ({_each(attack.probes)})."
    )
    if not leak and not able:
        seen += f" {_why(attack, control, control_found)}"
    return Check(
        "recovery/words",
        "G3",
        judge(leak, able),
        CLAIM,
        seen,
        {
            "words_recovered": found,
            "words_in_secret": SECRET_WORDS,
            "dictionary_words": len(DICTIONARY),
            "guesses": guesses,
            "guesses_per_word": guesses / len(attack.probes),
            "probing_s": attack.probing_s,
            "instrument": oracle.sees,
            "instrument_misses": oracle.misses,
            "instrument_errs": oracle.errs,
            "control_words_recovered": control_found,
            "control_guesses": sum(control.probes),
            "control_probing_s": control.probing_s,
        },
        control=f"The thief recovers {control_found} of {SECRET_WORDS} words of a secret of its own"
        f" ({_each(control.probes)})",
        table=[*_rows("another tenant's", attack), *_rows("its own", control)],
        advice=ADVICE if leak else "",
    )


def _why(attack: Theft, control: Theft, control_found: int) -> str:
    if attack.ended and control.ended:
        return f"That tells nothing: of a secret of its own it recovers only {control_found} words."
    probes = sum(attack.probes) + sum(control.probes)
    each_s = (attack.probing_s + control.probing_s) / max(1, probes)
    all_s = each_s * len(DICTIONARY) * (1 + SECRET_WORDS)
    return (
        f"Time was up before the end: at {each_s:.2g} s for a guess, attack and control take up to "
        f"{all_s:.0f} s."
    )


def _each(probes: Sequence[int]) -> str:
    return ", ".join(f"word {number}: {count}" for number, count in enumerate(probes, 1))


def _rows(whose: str, theft: Theft) -> list[dict[str, float | int | str | None]]:
    return [
        {
            "secret": whose,
            "word": number,
            "guesses": count,
            "ended": "taken for right" if number <= len(theft.words) else "none found",
        }
        for number, count in enumerate(theft.probes, 1)
    ]


SUITE = Suite(
    "recovery",
    "Rebuilding a prompt that another tenant has cached, word by word",
    ("G3",),
    run,
    share=3.0,
    least_s=30.0,
)
