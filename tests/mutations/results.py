"""What has been found, kept in a file so that an interrupted run goes on where it stopped."""

import hashlib
import json
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("platform", "engine", "tenants", "migrations", "security", "tests/mutations")
"""What a finding depends on: it is valid as long as none of this changes."""


@dataclass(frozen=True)
class Result:
    """What became of one mutant.

    Args:
        caught_by: the first check of its suite that failed; empty for a survivor.
        why: what else is to be said of a survivor.
    """

    caught_by: str
    seconds: float
    why: str = ""


class Results:
    """The findings on the source as it is now."""

    def __init__(self, path: Path, *, keep: bool) -> None:
        """
        Args:
            keep: start from what the file has, if it is of this source.
        """
        self._path = path
        self._tree = tree()
        try:
            kept = json.loads(path.read_text())
        except (OSError, ValueError):
            kept = {}
        known = keep and kept.get("tree") == self._tree
        found = kept.get("results", {}) if known else {}
        self._found = {name: Result(**fields) for name, fields in found.items()}

    def get(self, mutant: str) -> Result | None:
        """What was found, if anything."""
        return self._found.get(mutant)

    def put(self, mutant: str, result: Result) -> None:
        """Notes a finding, at once on disk."""
        self._found[mutant] = result
        found = {name: asdict(each) for name, each in self._found.items()}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps({"tree": self._tree, "results": found}, indent=1))


def tree() -> str:
    """A hash over the files that git knows or would add, as they are in the working tree."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]
    listed = subprocess.run([*command, *SOURCES], cwd=ROOT, capture_output=True, check=True)
    digest = hashlib.sha256()
    for name in sorted(set(listed.stdout.decode().split("\0")) - {""}):
        path = ROOT / name
        content = path.read_bytes() if path.is_file() else b""
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
