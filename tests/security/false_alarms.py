"""How often the auditor cries wolf: `make audit-false-alarms`.

The timing and the eviction suite attack a stack that has no such fault, again and again with the
default budget, while a third tenant works. What has been run is kept in a file, and goes on there.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from flood.targets import STACK_POOL
from flood.texts import words
from running_stack import SALTWALL, running_stack
from scipy import stats

from saltwall_platform.cli import session
from saltwall_platform.stack import welcome

SUITES = ("timing", "eviction")
BYSTANDER = "false-alarms-bystander"
PROMPT_WORDS, ANSWER_TOKENS = (50, 600), 16
PAUSE_S = 1.0
"""Between the bystander's answer and its next request, on average: about half an engine's time on
two CPU cores."""
ERROR_RATE = 0.01
"""Of a run of the timing suite; the eviction suite counts, and has none."""
DOUBT = 0.05
"""So many alarms, or more, must be this likely at the stated rate."""


@dataclass(frozen=True)
class Stack:
    """A running product: where its tenants connect, and the environment of its commands."""

    url: str
    environ: dict[str, str]

    def saltwall(self, *arguments: str, check: bool = True, says: bool = True) -> str:
        """Runs a command on it; what it printed. Its errors show, unless unwanted."""
        done = subprocess.run(
            [*SALTWALL, *arguments],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=None if says else subprocess.DEVNULL,
            text=True,
            check=check,
        )
        return done.stdout.strip()


@contextmanager
def stack(home: Path | None) -> Iterator[Stack]:
    """The one that runs with this data directory, or a new one for the while."""
    if home is not None:
        os.environ["SALTWALL_HOME"] = str(home.absolute())
        yield Stack(f"{welcome.base_url(session.settings())}/v1", dict(os.environ))
        return
    with (
        tempfile.TemporaryDirectory() as directory,
        running_stack(Path(directory) / "home", *STACK_POOL) as own,
    ):
        yield Stack(own.base_url, own.environ)


@contextmanager
def background(on: Stack) -> Iterator[Counter[str]]:
    """A third tenant that works until the end of the block; counts its answers."""
    on.saltwall("tenant", "delete", "--yes", BYSTANDER, check=False, says=False)
    on.saltwall("tenant", "create", BYSTANDER)
    key = on.saltwall("key", "create", BYSTANDER, "--plain")
    ended, answers = threading.Event(), Counter[str]()
    with httpx.Client(headers={"authorization": f"Bearer {key}"}, trust_env=False) as http:
        model = http.get(f"{on.url}/models").raise_for_status().json()["data"][0]["id"]
    thread = threading.Thread(target=work, args=(on.url, key, model, ended, answers))
    thread.start()
    try:
        yield answers
    finally:
        ended.set()
        thread.join()
        on.saltwall("tenant", "delete", "--yes", BYSTANDER, check=False)


def work(url: str, key: str, model: str, ended: threading.Event, answers: Counter[str]) -> None:
    """One request after the other, of all lengths, with pauses of all lengths."""
    rng = random.Random()
    headers = {"authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, headers=headers, timeout=300, trust_env=False) as http:
        while not ended.wait(rng.expovariate(1 / PAUSE_S)):
            prompt = words(rng.randint(*PROMPT_WORDS), rng)
            body = {"model": model, "prompt": prompt, "max_tokens": ANSWER_TOKENS}
            try:
                answers[str(http.post("/completions", json=body).status_code)] += 1
            except httpx.HTTPError as error:
                answers[type(error).__name__] += 1


def audit(on: Stack, seed: str, budget: str) -> dict[str, Any]:
    """One run: its conclusion, and the verdict of each check that decides."""
    with tempfile.TemporaryDirectory() as out:
        asked = [word for name in SUITES for word in ("--suite", name)]
        options = ["--budget", budget, "--seed", seed, "--out", out]
        began = time.monotonic()
        on.saltwall("audit", "run", *asked, *options, check=False)
        report = Path(out) / "report.json"
        if not report.exists():
            sys.exit("the audit ended without a report")
        document = json.loads(report.read_text())
    checks = [check for suite in document["suites"] for check in suite["checks"]]
    return {
        "seed": seed,
        "seconds": round(time.monotonic() - began, 1),
        "conclusion": document["conclusion"]["verdict"],
        "verdicts": {check["id"]: check["verdict"] for check in checks if check["guarantee"]},
        "failed": {check["id"]: check["seen"] for check in checks if check["verdict"] == "failed"},
    }


def conclude(runs: Sequence[dict[str, Any]]) -> bool:
    """Prints what all runs amount to; whether the stated error rate is believable."""
    by_check = {
        name: Counter(run["verdicts"].get(name) for run in runs)
        for name in sorted({name for run in runs for name in run["verdicts"]})
    }
    for name, verdicts in by_check.items():
        print(f"  {name}: " + ", ".join(f"{count} {what}" for what, count in verdicts.items()))
    alarms = sum("failed" in run["verdicts"].values() for run in runs)
    likely = float(stats.binomtest(alarms, len(runs), ERROR_RATE, alternative="greater").pvalue)
    unclear = sum(run["conclusion"] == "inconclusive" for run in runs)
    print(
        f"{alarms} false alarms in {len(runs)} runs; stated: {ERROR_RATE:.0%} of runs, at which as"
        f" many or more have a chance of {likely:.2f}. {unclear} runs could not tell."
    )
    for run in runs:
        for name, seen in run["failed"].items():
            print(f"  {run['seed']} {name}: {seen}")
    return likely >= DOUBT


def main() -> int:
    """Runs what is missing, and concludes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--budget", default="2m", help="of each run")
    parser.add_argument("--home", type=Path, help="of a running `saltwall up`; else one is started")
    parser.add_argument("--file", type=Path, default=Path("build/false-alarms.json"))
    options = parser.parse_args()
    options.file.parent.mkdir(parents=True, exist_ok=True)
    runs = json.loads(options.file.read_text()) if options.file.exists() else []
    if len(runs) < options.runs:
        with stack(options.home) as on, background(on) as answers:
            for number in range(len(runs), options.runs):
                runs.append(audit(on, f"false-alarm-{number}", options.budget))
                options.file.write_text(json.dumps(runs, indent=1))
                print(f"run {number + 1}: {runs[-1]['conclusion']}", flush=True)
            print(f"the bystander's answers by status: {dict(answers)}")
    return 0 if conclude(runs) else 1


if __name__ == "__main__":
    sys.exit(main())
