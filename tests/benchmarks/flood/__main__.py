"""`make bench-flood`: attacks a tenant on the real engine, and on stock vLLM for comparison.

Needs no GPU: the demo model on an engine of 320 blocks. Each trial is the victim alone, under
attack, alone, and so on. The figures are ratios of such neighbours: machines are noisy.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from flood import attacks, report, targets, trial
from flood.targets import STEP_VARIABLE, Target
from flood.trial import Phase, Trial

DEFAULT = "default"


class Progress:
    """A line on stderr after each phase: how much is done, and how long the rest may take."""

    def __init__(self, phases: int) -> None:
        self.phases, self.done = phases, 0
        self.began = time.monotonic()

    def __call__(self, where: str, phase: Phase) -> None:
        self.done += 1
        left = (time.monotonic() - self.began) / self.done * (self.phases - self.done)
        print(
            f"{self.done / self.phases:4.0%}, {left / 60:3.0f} min left: {where}: "
            f"TTFT {phase.ttft_s():.3f} s, hit rate {phase.hit_rate:.2f}",
            file=sys.stderr,
            flush=True,
        )


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench-flood", description=__doc__)
    parser.add_argument(
        "--target", choices=["saltwall", "stock", "both"], default="both", help="(%(default)s)"
    )
    parser.add_argument(
        "--strategies",
        type=lambda text: text.split(","),
        default=list(attacks.STRATEGIES),
        metavar="NAME,...",
        help=f"of {', '.join(attacks.STRATEGIES)} (all)",
    )
    parser.add_argument(
        "--attackers", type=int, default=1, metavar="N", help="attacking tenants (%(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, metavar="N", help="alone and attacked (%(default)s)"
    )
    parser.add_argument(
        "--questions", type=int, default=8, metavar="N", help="in each phase (%(default)s)"
    )
    parser.add_argument(
        "--step-ms",
        type=lambda text: text.split(","),
        default=[DEFAULT],
        metavar="MS,...",
        help=f"values of {STEP_VARIABLE}, each in an engine of its own; 0 is stock's full step",
    )
    parser.add_argument(
        "--home", type=Path, help="data directory to use and keep; unset: a temporary one"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="every figure, as JSON")
    options = parser.parse_args()
    unknown = set(options.strategies) - set(attacks.STRATEGIES)
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(attacks.STRATEGIES)}")
    return options


def runs(
    options: argparse.Namespace, home: Path
) -> list[tuple[tuple[str, str], AbstractContextManager[Target]]]:
    """The servers to start, one after the other."""
    found: list[tuple[tuple[str, str], AbstractContextManager[Target]]] = []
    if options.target != "stock":
        for step_ms in options.step_ms:
            environment = {} if step_ms == DEFAULT else {STEP_VARIABLE: step_ms}
            found.append(
                (("saltwall", step_ms), targets.saltwall(home, options.attackers, environment))
            )
    if options.target != "saltwall":
        found.append((("stock", "–"), targets.stock(home)))
    return found


def measure(options: argparse.Namespace, home: Path) -> dict[tuple[str, str], list[Trial]]:
    """Runs everything."""
    results: dict[tuple[str, str], list[Trial]] = {}
    servers = runs(options, home)
    phases = len(servers) * len(options.strategies) * (2 * options.rounds + 1)
    progress = Progress(phases)
    seed = int(time.time())
    for key, server in servers:
        with server as target:
            for strategy in options.strategies:
                seed += 1
                done = trial.attack(
                    target,
                    strategy,
                    rounds=options.rounds,
                    questions=options.questions,
                    seed=seed,
                    progress=partial(progress, f"{strategy}, {' '.join(key)}"),
                )
                results.setdefault(key, []).append(asyncio.run(done))
                if options.json:  # as it goes: a long run that is cut has not been for nothing
                    options.json.write_text(json.dumps(report.document(results), indent=1))
    return results


def main() -> None:
    """Runs the attacks and prints the table."""
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="flood-") as temporary:
        print(report.markdown(measure(options, options.home or Path(temporary))))


if __name__ == "__main__":
    main()
