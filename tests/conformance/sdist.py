"""vLLM's source distribution: fetched by pip, pinned by hash, unpacked, never built."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).parent


class SdistError(Exception):
    """vLLM's tests cannot be had; the message says what to do."""


def pin(version: str) -> Path:
    """The requirements file that pins this version's source distribution.

    Raises:
        SdistError: none is committed for it.
    """
    path = HERE / f"vllm-{version}.txt"
    if not path.exists():
        known = ", ".join(sorted(p.stem.removeprefix("vllm-") for p in HERE.glob("vllm-*.txt")))
        raise SdistError(
            f"the source distribution of vLLM {version} is not pinned (pinned: {known}): "
            "tests/conformance/README.md says how to add a version"
        )
    return path


def fetch(version: str, cache: Path) -> Path:
    """Downloads the source distribution and unpacks it into `cache`, unless it is there already.

    Returns:
        The directory that holds `tests/`, and vLLM's Python code as `sources/vllm/`.

    Raises:
        SdistError: pip failed, or the version is not pinned.
    """
    requirement = pin(version)
    (digest,) = re.findall(r"--hash=sha256:([0-9a-f]{64})", requirement.read_text())
    target = cache / f"vllm-{version}-{digest[:12]}"
    if target.exists():
        return target
    work = cache / f"fetching-{os.getpid()}"
    shutil.rmtree(work, ignore_errors=True)
    try:
        _download(requirement, work)
        (archive,) = work.glob("*.tar.gz")
        _unpack(archive, work / "unpacked")
        try:
            (work / "unpacked").rename(target)
        except OSError:
            if not target.exists():  # another run was faster
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _download(requirement: Path, work: Path) -> None:
    """Has pip fetch it and check its hash, with the index, proxy and certificates pip knows."""
    print(f"Fetching vLLM's source distribution ({requirement.name}, 45 MB) ...", flush=True)
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--require-hashes"),
        *("--requirement", str(requirement), "--dest", str(work)),
    ]
    environment = {**os.environ, "PYTHONPATH": str(HERE / "no_build")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SdistError(
            f"{done.stdout}{done.stderr}\npip could not download vLLM's source distribution: check "
            "its index settings (`pip config list`, PIP_INDEX_URL, PIP_FIND_LINKS, PIP_CERT)"
        )


def _unpack(archive: Path, target: Path) -> None:
    """Unpacks the two folders that are used, without modes and owners.

    vLLM's code gets a parent of its own: beside `tests/` it would hide the installed vLLM.
    """
    places = {"tests": target / "tests", "vllm": target / "sources" / "vllm"}
    with tarfile.open(archive) as sdist:
        for member in sdist:
            folder, _, inner = member.name.partition("/")[2].partition("/")
            content = sdist.extractfile(member) if folder in places and inner else None
            if content is not None:
                path = places[folder] / inner
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())
    if not all(place.is_dir() for place in places.values()):
        raise SdistError(f"{archive.name} lacks {' or '.join(places)}")
