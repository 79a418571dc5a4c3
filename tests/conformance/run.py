"""Runs vLLM's own tests and compares their outcomes with stock vLLM's.

    python tests/conformance/run.py             Saltwall forced in: make conformance
    python tests/conformance/run.py --strict    and its ledger checked all along: conformance-strict
    python tests/conformance/run.py --record    stock vLLM, to write the list to compare with

With `--vllm VERSION` the Python code of that version's source distribution stands in for the
installed vLLM: enough for these tests.

Exits with 0 when every test ends as on stock, with 1 when one does not, with 2 when they could not
be run.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import comparison
import sdist
import workplace

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / "build" / "conformance"  # git ignores build/, and `make clean` removes it
PLUGINS = {"stock": (), "forced": ("forced", "by_hand"), "strict": ("forced", "by_hand", "strict")}

COMMENT = """\
What vLLM {version}'s own tests do on stock vLLM: {counts}.
Written by `run.py --record`. The tests that pass are compared; the others lack what Saltwall
does not serve or these tests must not do: llava-hf/llava-1.5-7b-hf's config and processor
(multimodal, which needs torchvision too), or a model to download."""

Records = dict[str, dict[str, Any]]  # by test: its outcome, seconds and, if it failed, the detail


class RunError(Exception):
    """The tests could not be run; the message says why."""


def run_tests(place: Path, mode: str, version: str, sources: bool) -> Records:
    """Runs the tests in a pytest of their own, with a line of progress for each file."""
    record, log = place / f"{mode}.jsonl", place / f"{mode}.log"
    record.unlink(missing_ok=True)
    command = [
        *(sys.executable, "-m", "pytest", "-c", "pytest.ini", "--rootdir", ".", "--noconftest"),
        *("-p", "no:cacheprovider", "-q", "--tb", "short", "--continue-on-collection-errors"),
        *("--outcomes", str(record), "--vllm", version),
        *(word for name in ("pytest_timeout", "outcomes", *PLUGINS[mode]) for word in ("-p", name)),
        *workplace.FILES,
    ]
    environment = workplace.environment(place, sources, os.environ)
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=place, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            records = dict(_follow(process, record))
        finally:
            process.kill()
            process.wait()
    if process.returncode not in (0, 1):  # 1: some tests failed, as some do on stock
        raise RunError(f"{log.read_text()[-4000:]}\npytest ended with {process.returncode}: {log}")
    return records


def _follow(process: subprocess.Popen[bytes], record: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the tests' records as they end, and prints a line whenever a file is done."""
    file, outcomes, began = "", Counter[str](), time.monotonic()

    def say() -> None:
        if file:
            counts = ", ".join(f"{n} {outcome}" for outcome, n in sorted(outcomes.items()))
            print(f"  {time.monotonic() - began:4.0f} s  {file}: {counts}", flush=True)

    for line in _lines(process, record):
        entry = json.loads(line)
        now = entry["test"].partition("::")[0]
        if now != file:
            say()
            file, outcomes = now, Counter()
        outcomes[entry["outcome"]] += 1
        yield entry["test"], entry
    say()


def _lines(process: subprocess.Popen[bytes], record: Path) -> Iterator[str]:
    """Yields the lines of a file that a process writes, until the process has ended."""
    while not record.exists() and process.poll() is None:
        time.sleep(0.2)  # until the process has made its file
    if not record.exists():
        return
    with record.open(encoding="utf-8") as written:
        partial = ""
        while True:
            ended = process.poll() is not None
            while part := written.readline():
                partial += part
                if partial.endswith("\n"):
                    yield partial
                    partial = ""
            if ended:
                return
            time.sleep(0.2)  # until there may be another line


def compare(version: str, mode: str, records: Records, counts: dict[str, int]) -> int:
    """Prints how the outcomes compare with stock's; returns the exit code."""
    stock = comparison.parse(stock_list(version).read_text().splitlines())
    here = {test: entry["outcome"] for test, entry in records.items()}
    different = comparison.differences(stock, here)
    for difference in different:
        detail = records.get(difference.test, {}).get("detail", "")
        print(f"\n{difference}\n{detail}".rstrip())
    print(f"\nForced in: {', '.join(f'{n:,} {what}' for what, n in counts.items())}.")
    passed = sum(outcome == "passed" for outcome in here.values())
    same = len({*stock, *here}) - len(different)
    print(
        f"vLLM {version}'s own tests, {mode}: {passed} pass, {same} of {len(stock)} end as on "
        f"stock, {len(different)} differ."
    )
    return 1 if different else 0


def write_list(version: str, records: Records) -> None:
    """Writes the list of stock vLLM's outcomes."""
    outcomes = {test: entry["outcome"] for test, entry in records.items()}
    counts = ", ".join(f"{n} {outcome}" for outcome, n in Counter(outcomes.values()).most_common())
    comment = COMMENT.format(version=version, counts=counts)
    stock_list(version).write_text(comparison.render(outcomes, comment))
    print(f"{counts}: {stock_list(version)}")


def stock_list(version: str) -> Path:
    """The committed list for a version of vLLM."""
    return HERE / f"stock-{version}.txt"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strict", action="store_true", help="check the ledger all along")
    parser.add_argument("--record", action="store_true", help="run stock vLLM and write its list")
    parser.add_argument("--vllm", metavar="VERSION", help="another version than the installed one")
    arguments = parser.parse_args()
    if arguments.record and arguments.strict:
        parser.error("stock vLLM has no ledger to check")
    version = arguments.vllm or workplace.vllm_version()
    mode = "stock" if arguments.record else "strict" if arguments.strict else "forced"
    try:
        place = sdist.fetch(version, CACHE)
        workplace.furnish(place)
        print(f"vLLM {version}'s own tests, {mode}, in {place} ...", flush=True)
        records = run_tests(place, mode, version, sources=bool(arguments.vllm))
    except (sdist.SdistError, RunError) as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.record:
        write_list(version, records)
        return 0
    counts = json.loads((place / "forced.json").read_text())
    return compare(version, mode, records, counts)


if __name__ == "__main__":
    sys.exit(main())
