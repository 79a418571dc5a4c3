"""`make bench-engine` runs and compares."""

import json
import subprocess
import sys
from pathlib import Path

BENCH_ENGINE = Path(__file__).parent / "engine"


def test_each_subject_without_an_engine_yields_ratios(tmp_path: Path) -> None:
    """A quick run measures hash, pool and schedule on both sides, and writes what it prints."""
    result = tmp_path / "result.json"
    command = [sys.executable, BENCH_ENGINE, "--quick", "--only", "hash,pool,schedule"]
    done = subprocess.run(
        [*command, "--json", result], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(result.read_text())["outcomes"]
    assert {outcome["subject"] for outcome in outcomes} == {"hash", "pool", "schedule"}
    for outcome in outcomes:
        assert outcome["ratio"]["median"] > 0
        assert outcome["noise"]["median"] > 0
        assert outcome["case"] in done.stdout
