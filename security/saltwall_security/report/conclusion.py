"""What the checks amount to: the verdict of a suite, of a guarantee, and of the run."""

from collections import Counter
from collections.abc import Sequence

from saltwall_security.check import Verdict, worst
from saltwall_security.guarantees import ESSENTIAL, GUARANTEES
from saltwall_security.report.document import CheckEntry, Conclusion, GuaranteeEntry, SuiteEntry


def suite_verdict(checks: Sequence[CheckEntry]) -> Verdict:
    """Over the checks that decide; over all, where none does."""
    deciding = [check.verdict for check in checks if check.decides]
    return worst(deciding or [check.verdict for check in checks])


def guarantees(suites: Sequence[SuiteEntry]) -> list[GuaranteeEntry]:
    """Every guarantee, also those that nothing was about."""
    entries = []
    tested = {c.id for suite in suites for c in suite.checks if c.verdict is not Verdict.NOT_TESTED}
    for name, claim in GUARANTEES.items():
        found = [c.verdict for suite in suites for c in suite.checks if c.guarantee == name]
        entries.append(
            GuaranteeEntry(
                id=name,
                claim=claim,
                verdict=worst(found),
                counts=dict(Counter(found)),
                untested=tuple(c for c in ESSENTIAL.get(name, ()) if c not in tested),
            )
        )
    return entries


def conclude(suites: Sequence[SuiteEntry], asked: Sequence[str]) -> Conclusion:
    """The conclusion of a run. Doubt is never a pass, and a failure outweighs it.

    Args:
        asked: the suites that were chosen by name: each must have been tested.
    """
    by_verdict: dict[Verdict, list[str]] = {}
    entries = guarantees(suites)
    for entry in entries:
        by_verdict.setdefault(entry.verdict, []).append(entry.id)
    if failed := by_verdict.get(Verdict.FAILED):
        return _could(Verdict.FAILED, 1, f"{_names(failed)} failed")
    if unclear := by_verdict.get(Verdict.INCONCLUSIVE):
        return _could(Verdict.INCONCLUSIVE, 2, f"the run could not tell about {_names(unclear)}")
    missed = [s.name for s in suites if s.name in asked and s.verdict is Verdict.NOT_TESTED]
    if missed:
        because = f"asked for, but not tested: {_names(missed)}"
        return _could(Verdict.INCONCLUSIVE, 2, because)
    held = by_verdict.get(Verdict.HELD)
    if not held:
        return _could(Verdict.INCONCLUSIVE, 2, "nothing was tested")
    because = f"all that was tested held: {_names(held)}"
    in_part = [entry.id for entry in entries if entry.in_part]
    return _could(Verdict.HELD, 0, because + (f", {_names(in_part)} in part" if in_part else ""))


def _could(verdict: Verdict, code: int, because: str) -> Conclusion:
    return Conclusion.model_validate({"verdict": verdict, "exit_code": code, "because": because})


def _names(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
