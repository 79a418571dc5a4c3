"""G3: whether a prompt of somebody else's can be rebuilt by guessing.

A thief guesses, word by word, what a victim has filled into a form, and reads from `cached_tokens`
or from the clock which guess was right. The control is the same thief against a secret of its own:
that it must recover.
"""

from collections.abc import AsyncIterator, Sequence

from saltwall_security.check import Check, Verdict, judge
from saltwall_security.prober import Prober
from saltwall_security.suite import Audit, Suite
from saltwall_security.suites.recovery.attacker import ATTACKS, Theft, Thief, beyond_chance
from saltwall_security.suites.recovery.oracle import Oracle, by_count, by_time
from saltwall_security.suites.recovery.template import DICTIONARY, SECRET_WORDS

CLAIM = "Guessing recovers no words of a prompt that another tenant has cached, beyond chance"
ADVICE = (
    "Make a secret of each tenant's own part of the hash of every cached block. Hiding "
    "`cached_tokens` slows the thief down, and does not stop it: it uses the clock."
)
KEPT = (0.7, 0.4)
"""Of the time that is left for all, what each attack leaves to those after it and the control."""
WHOSE = ("the first tenant's", "the second tenant's")


async def run(audit: Audit) -> AsyncIterator[Check]:
    """Both tenants in turn as thieves, then the control, with the sharpest instrument there is.

    One attack that succeeds is enough.
    """
    probe = Prober()
    one, spy = audit.client(0), audit.client(1)
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
    attacks, left_s = list[Theft](), audit.left_s
    for (victim, thief), kept in zip(((one, spy), (spy, one)), KEPT, strict=True):
        attack = Thief(audit, probe, oracle, victim, thief)
        attacks.append(await attack.steal(secret, kept * left_s))
        if beyond_chance(oracle, attacks[-1].right(secret)):
            break
    audit.say(f"guessing its own words, by {oracle.sees}")
    control = await Thief(audit, probe, oracle, spy, spy).steal(own, 0.0)
    found = max(attack.right(secret) for attack in attacks)
    yield _check(oracle, attacks, found, control, control.right(own))


def _check(
    oracle: Oracle, attacks: Sequence[Theft], found: int, control: Theft, control_found: int
) -> Check:
    leak = beyond_chance(oracle, found)
    # A count that misses a word of the thief's own may have missed the victim's as well.
    able = control_found == SECRET_WORDS or (
        not oracle.counts and beyond_chance(oracle, control_found)
    )
    able = able and all(attack.ended for attack in attacks)
    probes = [count for attack in attacks for count in attack.probes]
    each = "; ".join(_each(attack.probes) for attack in attacks)
    seen = (
        f"{found} of {SECRET_WORDS} words recovered by {oracle.sees}, each of a dictionary of "
        f"{len(DICTIONARY)}, in {len(attacks)} of {ATTACKS} attacks, with {sum(probes)} guesses "
        f"({each})."
    )
    if not leak and not able:
        seen += f" {_why([*attacks, control], control_found)}"
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
            "attacks": len(attacks),
            "guesses": sum(probes),
            "guesses_per_word": sum(probes) / len(probes),
            "probing_s": sum(attack.probing_s for attack in attacks),
            "instrument": oracle.sees,
            "instrument_misses": oracle.misses,
            "instrument_errs": oracle.errs,
            "control_words_recovered": control_found,
            "control_guesses": sum(control.probes),
            "control_probing_s": control.probing_s,
        },
        control=f"The thief recovers {control_found} of {SECRET_WORDS} words of a secret of its own"
        f" ({_each(control.probes)})",
        table=[
            *(
                row
                for whose, attack in zip(WHOSE, attacks, strict=False)
                for row in _rows(whose, attack)
            ),
            *_rows("the thief's own", control),
        ],
        advice=ADVICE if leak else "",
    )


def _why(thefts: Sequence[Theft], control_found: int) -> str:
    if all(theft.ended for theft in thefts):
        return f"That tells nothing: of a secret of its own it recovers only {control_found} words."
    probes = sum(sum(theft.probes) for theft in thefts)
    each_s = sum(theft.probing_s for theft in thefts) / max(1, probes)
    all_s = each_s * len(DICTIONARY) * (ATTACKS + SECRET_WORDS)
    return (
        f"Time was up before the end: at {each_s:.2g} s for a guess, attacks and control take "
        f"up to {all_s:.0f} s."
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
    least_s=50.0,
)
