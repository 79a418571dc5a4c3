"""`make bench-engine`: Saltwall's engine against stock vLLM, side by side in one process."""

import argparse
import json
import logging
import os
import platform
import sys
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paired import Outcome

SUBJECTS = {
    "hash": "hashing",
    "pool": "pools",
    "schedule": "schedules",
    "memory": "memory",
    "tokens": "throughput",
}
"""The module of each; its `outcomes(quick)` measures."""

BENCHMARKS = Path(__file__).parents[1]
SUPPORT = BENCHMARKS.parent / "support"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench-engine", description=__doc__)
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=[*SUBJECTS],
        metavar="SUBJECT,...",
        help=f"some of: {', '.join(SUBJECTS)} (default: all)",
    )
    parser.add_argument("--quick", action="store_true", help="a few rounds of small cases")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every figure, into a file")
    options = parser.parse_args()
    unknown = set(options.only) - set(SUBJECTS)
    if unknown:
        parser.error(f"no such subject: {', '.join(sorted(unknown))}")
    return options


def machine() -> dict[str, Any]:
    """What it runs on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "vllm": import_module("vllm").__version__,
        "cbor2": metadata.version("cbor2"),
    }


def line(outcome: "Outcome") -> str:
    """One outcome, as a line of the table."""
    goal = ""
    if outcome.goal is not None:
        goal = f"{'>=' if outcome.more_is_better else '<='} {outcome.goal:.2f} "
        goal += "met" if outcome.met else "MISSED"
    return (
        f"{outcome.subject:9} {outcome.case:36} {outcome.unit:9} {outcome.stock:10,.3g}"
        f" {outcome.saltwall:10,.3g}  {outcome.ratio or ''!s:12} {outcome.noise or ''!s:12} {goal}"
    )


def main() -> None:
    """Measures, printing each outcome as soon as there is one."""
    options = arguments()
    sys.path += [str(BENCHMARKS), str(SUPPORT)]
    import_module("bare_config").set_environment()
    logging.disable(logging.WARNING)  # vLLM's advice on models and devices that are not there
    described = machine()
    print(", ".join(f"{name} {value}" for name, value in described.items()))
    print(
        f"{'subject':9} {'case':36} {'unit':9} {'stock':>10} {'saltwall':>10}  "
        f"{'ratio':12} {'stock/stock':12} goal"
    )
    found: list[Outcome] = []
    for subject in options.only:
        for outcome in import_module(SUBJECTS[subject]).outcomes(options.quick):
            found.append(outcome)
            print(line(outcome), flush=True)
    if options.json:
        result = {"machine": described, "outcomes": [outcome.json() for outcome in found]}
        options.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
