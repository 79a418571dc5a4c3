"""`make audit-mutations`: each of many single defects must be caught by the suite named for it.

The product is not changed: its processes are started as a test build (`testbuild`), in which one
defect at a time is turned on. Exit code 0: all caught; 1: one survived; 2: a suite fails without
any defect, so that it tells nothing.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from mutants import catalogue
from mutants.mutant import Mutant
from results import ROOT, Results
from session import Session
from table import listing, markdown

DEFAULT_DIRECTORY = ROOT / "build" / "mutations"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make audit-mutations", description=__doc__)
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        metavar="NAME,...",
        help="some of the mutants, or all of some suites (default: all)",
    )
    parser.add_argument("--list", action="store_true", help="show the mutants and stop")
    parser.add_argument(
        "--again", action="store_true", help="do not trust what earlier runs found on this source"
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=DEFAULT_DIRECTORY,
        metavar="DIR",
        help="for results and the stack's data (%(default)s)",
    )
    return parser.parse_args()


def chosen(only: list[str] | None) -> list[Mutant]:
    """The mutants of these names or suites.

    Raises:
        SystemExit: there is none of a name.
    """
    mutants = catalogue.mutants()
    if only is None:
        return mutants
    known = {mutant.name for mutant in mutants} | {mutant.suite for mutant in mutants}
    if unknown := [name for name in only if name not in known]:
        raise SystemExit(f"no mutant or suite is called {unknown[0]!r}: see --list")
    return [mutant for mutant in mutants if mutant.name in only or mutant.suite in only]


def main() -> int:
    """Runs what is asked for."""
    given = arguments()
    mutants = chosen(given.only)
    if given.list:
        print(listing(mutants))
        return 0
    directory = given.directory.absolute()
    results = Results(directory / "results.json", keep=not given.again)
    session = Session(mutants, results, directory)
    asyncio.run(session.run())
    print(markdown(mutants, results))
    for suite, failed in session.unusable.items():
        print(f"\n{suite}: fails without any defect ({', '.join(failed)})")
    if session.unusable:
        return 2
    return int(any(not results.get(mutant.name).caught_by for mutant in mutants))


if __name__ == "__main__":
    sys.exit(main())
