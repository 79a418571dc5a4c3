"""Makes the reports in this directory: `make audit-reports`.

Saltwall, with stock vLLM beside it; stock vLLM whose clients do not use `cache_salt`; and stock
vLLM whose clients all do. All with the same model and the same number of blocks, on this machine.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SALTWALL = (sys.executable, "-m", "saltwall_platform.cli")
POOL = ("--num-gpu-blocks-override", "320")
"""As many as stock vLLM has when the auditor starts it."""
SEED = "saltwall"
RUNS = {
    "saltwall": ("--baseline", "stock"),
    "stock": ("--target", "stock", "--keys", "none"),
    "stock-salts-only": (
        *("--target", "stock", "--keys", "salts"),
        *("--label", "stock vLLM, salts only"),
    ),
}


@contextmanager
def running(home: Path, environ: dict[str, str]) -> Iterator[None]:
    """Runs the product until the end of the block."""
    ports = [word for option in ("", "admin-", "engine-") for word in port_option(option)]
    with (home / "up.log").open("w") as log:
        up = subprocess.Popen(  # noqa: S603
            [*SALTWALL, "up", "--json", *ports, "--max-model-len", "4096", "--", *POOL],
            env=environ,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert up.stdout is not None  # noqa: S101  # for the type checker: it is a pipe
        if not up.stdout.readline():
            sys.exit(f"`saltwall up` ended:\n{(home / 'up.log').read_text()[-2000:]}")
        yield
    finally:
        up.send_signal(signal.SIGINT)
        up.wait()


def port_option(name: str) -> tuple[str, str]:
    """An option of `saltwall up` for a port that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"--{name}port", str(probe.getsockname()[1])


def audit(name: str, budget: str, environ: dict[str, str]) -> str:
    """Runs one audit; returns its conclusion."""
    out = HERE / name
    report = out / "report.json"
    report.unlink(missing_ok=True)  # an older one must not be taken for this run's
    print(f"\n{name}:", flush=True)
    command = [*SALTWALL, "audit", "run", *RUNS[name], "--budget", budget, "--seed", SEED]
    subprocess.run(  # noqa: S603
        [*command, "--out", str(out.relative_to(ROOT))],
        env=environ,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    if not report.exists():
        sys.exit(f"{name}: there is no report")
    conclusion = json.loads(report.read_text())["conclusion"]
    return f"exit code {conclusion['exit_code']}, {conclusion['because']}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="10m", help="for each target (default 10m)")
    parser.add_argument("--only", choices=RUNS, action="append", help="may be repeated")
    options = parser.parse_args()
    wanted = options.only or list(RUNS)
    said = {}
    with tempfile.TemporaryDirectory(prefix="saltwall-audit-") as home:
        environ = {k: v for k, v in os.environ.items() if not k.startswith("SALTWALL_")}
        environ["SALTWALL_HOME"] = home
        if "saltwall" in wanted:
            with running(Path(home), environ):
                said["saltwall"] = audit("saltwall", options.budget, environ)
        for name in wanted:
            if name not in said:
                said[name] = audit(name, options.budget, environ)
    print()
    for name, conclusion in said.items():
        print(f"{name}: {conclusion}")


if __name__ == "__main__":
    main()
