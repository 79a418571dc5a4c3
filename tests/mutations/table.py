"""The mutants and what became of them, for people."""

from collections.abc import Sequence

from mutants.mutant import Mutant
from results import Results


def listing(mutants: Sequence[Mutant]) -> str:
    """Each mutant with what is wrong in it."""
    rows = [[m.name, m.where, m.guarantee, m.suite, m.defect] for m in mutants]
    return _table(["mutant", "where", "breaks", "suite", "defect"], rows)


def markdown(mutants: Sequence[Mutant], results: Results) -> str:
    """Each mutant with the check that caught it; survivors last, and a line with the score."""
    rows, survivors, caught = [], [], 0
    for mutant in mutants:
        row = [mutant.name, mutant.where, mutant.suite]
        found = results.get(mutant.name)
        if found is None:
            survivors.append([*row, "**not tried**", ""])
        elif found.caught_by:
            caught += 1
            rows.append([*row, f"`{found.caught_by}`", f"{found.seconds:.0f}"])
        else:
            survivors.append([*row, f"**survived**: {found.why}", f"{found.seconds:.0f}"])
    head = ["mutant", "where", "suite", "caught by", "seconds"]
    return f"{_table(head, rows + survivors)}\n\n{caught} of {len(mutants)} mutants caught"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
