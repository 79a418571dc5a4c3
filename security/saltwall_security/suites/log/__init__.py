"""Are administrative acts in the audit log, and does it show what is done to it afterwards?"""

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltwall_security.check import Check, judge, not_made
from saltwall_security.errors import AuditError
from saltwall_security.suite import Audit, Suite
from saltwall_security.suites.log import acts, chain, copies
from saltwall_security.target import Access, Operator

AT_ONCE = 2
OWN = 8
"""So many events of its own the attacks need."""
MOST_BYTES = 2**30
FREE_PART = 4
"""A copy may take this part of what is free: three of them are there at a time, with journals."""
WHOLE = "The log as it is, is proven whole by a checkpoint of it"
ADVICE = "Chain each event to the one before by a hash, and compare with a signed checkpoint."


@dataclass(frozen=True)
class Attack:
    """Something done to a copy.

    Args:
        check: the attacks of one check are judged together.
        do: returns the positions that must be named.
        verdict: what must be said of the copy; "not whole" for either of the others.
        forge: makes the checkpoints that it is compared with; None for the genuine ones.
        anchored: whether it is compared with any.
        hashes: it means something only if the auditor can compute the log's hashes.
    """

    check: str
    do: Callable[[sqlite3.Connection, Sequence[int]], list[int]]
    verdict: str = "tampered"
    forge: Callable[[Path, sqlite3.Connection, Path], None] | None = None
    anchored: bool = True
    hashes: bool = False


CLAIMS: Mapping[str, str] = {
    "edited": "A change to any field of an event is found, and where",
    "deleted": "The removal of an event is found, also when those after it are moved up",
    "reordered": "The exchange of two events is found, and where",
    "truncated": "The removal of the newest events is found by a checkpoint, and without one "
    "the log is not said to be whole",
    "rewritten": "A changed event is found by a checkpoint when all hashes are computed anew",
    "forged": "Checkpoints that the log's own key has not signed prove nothing",
    "appended": "An event that never was, with the right hash, is not said to be proven",
}
ATTACKS: Sequence[Attack] = (
    Attack("edited", copies.edit),
    Attack("deleted", copies.delete),
    Attack("deleted", copies.close_up),
    Attack("reordered", copies.reorder),
    Attack("truncated", copies.truncate),
    Attack("truncated", copies.truncate, "not whole", anchored=False),
    Attack("rewritten", copies.rewrite, hashes=True),
    Attack("forged", copies.rewrite, forge=chain.with_old_signature, hashes=True),
    Attack("forged", copies.rewrite, forge=chain.with_own_key, hashes=True),
    Attack("appended", copies.append, "not whole", hashes=True),
)


async def run(audit: Audit) -> AsyncIterator[Check]:
    """Acts, reads the log, and then attacks copies of it."""
    operator = audit.target.operator
    if operator is None:
        raise AuditError("somebody must be able to act")
    try:
        await asyncio.to_thread(operator.log_events, 1)
    except AuditError as error:
        claims = {"complete": acts.CLAIM, "whole": WHOLE, **CLAIMS}
        for check in not_made("log", "G12", claims, f"Not run: {error}."):
            yield check
        return
    audit.say("acting, and reading the log")
    complete, tenant = await acts.check_acts(operator)
    yield complete
    database = copies.find(audit.target.files)
    most = min(MOST_BYTES, shutil.disk_usage(tempfile.gettempdir()).free // FREE_PART)
    if database is None:
        why = "no SQLite database with a chained audit log is among the files given"
    elif (size := copies.size(database)) > most:
        why = f"{database.name} has {size >> 20} MiB, and copies of {most >> 20} may be made here"
    elif len(own := copies.of_tenant(database, str(tenant.id))) < OWN:
        why = f"{database.name} is another database, or has not {OWN} of the acts"
    else:
        audit.say("attacking copies of the log")
        with tempfile.TemporaryDirectory(prefix="saltwall-audit-") as directory:
            async for check in attacked(Copies(operator, database, Path(directory), own)):
                yield check
        return
    for check in not_made("log", "G12", {"whole": WHOLE, **CLAIMS}, f"Not run: {why}."):
        yield check


class Copies:
    """The genuine copy with its checkpoint, and others that are made from it."""

    def __init__(self, operator: Operator, live: Path, directory: Path, own: Sequence[int]) -> None:
        self._operator, self._live, self._directory, self._own = operator, live, directory, own
        self._genuine, self._anchor = directory / "genuine.db", directory / "genuine.jsonl"
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def signed(self) -> tuple[str, bool]:
        """What is said of the copy as it is, and whether its hashes can be computed here."""
        copies.copy(self._live, self._genuine)
        await asyncio.to_thread(self._operator.sign_log, self._genuine, self._anchor)
        said = await asyncio.to_thread(self._operator.verify_log, self._genuine, self._anchor)
        with copies.writing(self._genuine) as log:
            return str(said["verdict"]), chain.is_known(log)

    async def seen(self, number: int, attack: Attack) -> str:
        """What was wrongly said after an attack; empty if nothing was."""
        async with self._turns:
            return await asyncio.to_thread(self._seen, number, attack)

    def _seen(self, number: int, attack: Attack) -> str:
        anchor = self._anchor if attack.anchored else None
        with copies.temporary(self._genuine, self._directory / str(number)) as copied:
            with copies.writing(copied) as log:
                named = attack.do(log, self._own)
                if attack.forge is not None:
                    anchor = copied.with_suffix(".jsonl")
                    attack.forge(self._anchor, log, anchor)
            return _wrong(attack, named, self._operator.verify_log(copied, anchor))


def _wrong(attack: Attack, named: Sequence[int], said: Mapping[str, Any]) -> str:
    verdict = said["verdict"]
    right = verdict == attack.verdict or (attack.verdict == "not whole" and verdict != "whole")
    if not right:
        return f"{attack.do.__name__}: {verdict}"
    unseen = set(named) - {problem["position"] for problem in said["problems"]}
    return f"{attack.do.__name__}: nothing said of {len(unseen)} events" if unseen else ""


async def attacked(copied: Copies) -> AsyncIterator[Check]:
    """A check of the copy as it is, and one of each kind of attack."""
    genuine, known = await copied.signed()
    results = await asyncio.gather(
        *(copied.seen(number, attack) for number, attack in enumerate(ATTACKS)),
        return_exceptions=True,
    )
    found = list(zip(ATTACKS, results, strict=True))
    control = f"The same copy before the attack: {genuine}."
    detected = any(result == "" for attack, result in found if attack.verdict == "tampered")
    yield Check(
        "log/whole",
        "G12",
        judge(genuine != "whole", detected),
        WHOLE,
        f"`saltwall log verify --anchor` says: {genuine}.",
        control=f"Attacked copies are told from it: {'yes' if detected else 'no'}.",
        advice="Keep the database, and look at `saltwall log verify`: the log is not as written.",
    )
    for name, claim in CLAIMS.items():
        those = [(attack, result) for attack, result in found if attack.check == name]
        yield _judged(name, claim, those, genuine == "whole", known, control)


def _judged(
    name: str,
    claim: str,
    those: Sequence[tuple[Attack, object]],
    genuine: bool,
    known: bool,
    control: str,
) -> Check:
    doubts = [str(result) for _, result in those if isinstance(result, AuditError)]
    for _, result in those:
        if isinstance(result, BaseException) and not isinstance(result, AuditError):
            raise result
    if not known and any(attack.hashes for attack, _ in those):
        doubts.append("its hashes are made in another way than the auditor knows")
    wrong = [result for _, result in those if isinstance(result, str) and result]
    seen = f"Said of {'; '.join(wrong)}." if wrong else f"Found in {len(those)} of {len(those)}."
    return Check(
        f"log/{name}",
        "G12",
        judge(bool(wrong), genuine and not doubts),
        claim,
        seen if wrong or not doubts else f"Not told: {'; '.join(doubts)}.",
        {"attacks": len(those)},
        control,
        advice=ADVICE,
    )


SUITE = Suite(
    "log",
    "Is each administrative act in the audit log, and does tampering show?",
    ("G12",),
    run,
    needs=frozenset({Access.OPERATOR}),
    share=0.5,
    least_s=30.0,
)
