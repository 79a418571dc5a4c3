"""`make bench-trace`: replays a production trace through the block pool, shared in several ways."""

import argparse
import gc
import itertools
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"

from chart import chart
from mooncake import footprint, read
from replay import ServiceTime, at_once, overlapping
from sharing import compare, everything_fits, immoderate
from strategies import STRATEGIES, Capacity
from tables import markdown
from workload import Workload, zipf

CHART = Path(__file__).parents[3] / "engine" / "trace-replay.svg"
QUICK = 2_000  # requests


class Mode(NamedTuple):
    """When requests give back their blocks, and what to compare."""

    heading: str
    service_time: ServiceTime
    strategies: Sequence[str]


MODES = {
    "at-once": Mode("One request at a time", at_once, tuple(STRATEGIES)),
    "overlapping": Mode(
        "Requests overlap (10,000 prompt tokens/s, 30 ms an output token)",
        overlapping,
        ("one LRU", "static", "elastic"),
    ),
}


class Progress:
    """One line on stderr now and then: how much is done, and how long the rest may take."""

    def __init__(self, steps: int) -> None:
        self.steps, self.done = steps, 0
        self.start = self.shown = time.monotonic()

    def __call__(self) -> None:
        self.done += 1
        now = time.monotonic()
        if now - self.shown > 5:
            self.shown = now
            left = (now - self.start) / self.done * (self.steps - self.done)
            print(f"{self.done / self.steps:4.0%}, {left:3.0f} s left", file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench-trace", description=__doc__)
    parser.add_argument(
        "--pools",
        type=lambda text: [float(part) / 100 for part in text.split(",")],
        default="1,5,20,50",
        metavar="PERCENT,...",
        help="pool sizes in per cent of the trace's distinct blocks (default: %(default)s)",
    )
    parser.add_argument("--tenants", type=int, default=16, help="default: %(default)s")
    parser.add_argument(
        "--zipf", type=float, default=1.0, metavar="S", help="exponent (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the drawing of tenants")
    parser.add_argument(
        "--reserved", type=float, default=50, metavar="PERCENT", help="default: %(default)s"
    )
    parser.add_argument(
        "--reserves",
        choices=["equal", "demand"],
        default="equal",
        help="each tenant's part of what is reserved (default: %(default)s)",
    )
    parser.add_argument(
        "--mode",
        choices=[*MODES, "both"],
        default="both",
        help="whether requests overlap in time (default: %(default)s)",
    )
    parser.add_argument("--quick", action="store_true", help=f"the first {QUICK} requests only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every figure, into a file")
    parser.add_argument(
        "--svg", type=Path, metavar="FILE", help=f"default: engine/{CHART.name}, unless --quick"
    )
    return parser.parse_args()


def main() -> None:
    """Runs the comparison and prints it."""
    options = arguments()
    calls = read(QUICK if options.quick else None)
    workload = Workload(calls, zipf(options.tenants, options.zipf), options.seed)
    modes = list(MODES) if options.mode == "both" else [options.mode]
    capacities = {
        pool: Capacity.of(
            int(footprint(calls) * pool),
            options.reserved / 100,
            workload.shares,
            options.reserves == "demand",
        )
        for pool in options.pools
    }
    extra = sum(len(immoderate(workload, capacity)) for capacity in capacities.values())
    replays = sum(len(MODES[mode].strategies) * len(capacities) for mode in modes)
    progress = Progress(len(calls) * (1 + replays + extra * ("at-once" in modes)))
    gc.disable()  # blocks are no garbage, and looking for some among them takes long
    best = everything_fits(workload, progress)
    results = {}
    for mode, pool in itertools.product(modes, capacities):
        chosen = MODES[mode]
        results[mode, pool] = compare(
            workload, capacities[pool], chosen.service_time, chosen.strategies, progress
        )
        gc.collect()  # the pools of this comparison, whose blocks refer to them
    print(markdown(results, {mode: MODES[mode].heading for mode in modes}, best.rate))
    if options.json:
        document = {
            "options": {name: str(value) for name, value in vars(options).items()},
            "everything_fits": best.json(),
            "results": [
                {"mode": mode, "pool": pool} | comparison.json()
                for (mode, pool), comparison in results.items()
            ],
        }
        options.json.write_text(json.dumps(document, indent=1))
    svg = options.svg or (None if options.quick else CHART)
    if svg and "at-once" in modes:
        svg.write_text(chart({p: c for (m, p), c in results.items() if m == "at-once"}, best.rate))


if __name__ == "__main__":
    main()
