"""What `make bench-flood` makes of its measurements."""

import subprocess
import sys
from pathlib import Path

import pytest
from flood.completion import Answer
from flood.report import markdown
from flood.trial import Phase, Trial, percentile

HERE = Path(__file__).parent


def phase(*ttfts_s: float, cached: int = 100, tokens_per_s: float = 50) -> Phase:
    """One answer for each time to first token, of 100 prompt tokens and 1 token more."""
    answers = [Answer(ttft_s, 0.01, 100, cached, 1) for ttft_s in ttfts_s]
    return Phase(answers, seconds=10, tokens_per_s=tokens_per_s)


def test_a_percentile_is_one_of_the_values() -> None:
    """By nearest rank: the least value that so many per cent do not exceed."""
    values = [3.0, 1.0, 2.0, 4.0]
    assert [percentile(values, p) for p in (1, 50, 51, 99, 100)] == [1, 2, 3, 4, 4]


def test_each_attack_is_compared_with_the_phases_around_it() -> None:
    """A machine that grows slower with each phase does not make the attack look worse."""
    trial = Trial("saltwall", "prefill")
    trial.alone = [phase(1.0), phase(2.0), phase(3.0)]
    trial.attacked = [phase(3.0, cached=50), phase(5.0, cached=50)]
    assert trial.ttft_ratios == [2, 2]
    assert trial.noise == [2, 1.5]
    assert trial.hit_ratio == 0.5


def test_the_attackers_throughput_leaves_out_what_the_victim_had_computed() -> None:
    """Cached tokens are nobody's work."""
    assert phase(1.0, 1.0, cached=91, tokens_per_s=50).attackers_tokens_per_s == 50 - 2 * 10 / 10


def test_the_table_has_a_row_a_trial_and_says_what_went_wrong() -> None:
    """Alarms and refusals stand below it."""
    trial = Trial("saltwall", "aborts", [phase(1.0), phase(1.0)], [phase(2.0)])
    trial.alarms["in_loop_shortfall"] = 1
    trial.refusals["503 busy"] = 2
    table, note = markdown({("saltwall", "100"): [trial]}).split("\n\n")
    assert len(table.splitlines()) == 3
    assert "**2.00×**" in table
    assert note.endswith("alarm in_loop_shortfall: 1; refused 2 times: 503 busy")


@pytest.mark.parametrize("wrong", ["nothing", "prefill,nothing"])
def test_an_unknown_attack_is_refused_before_anything_starts(wrong: str) -> None:
    """With the names of those that there are."""
    done = subprocess.run(
        [sys.executable, "-m", "flood", "--strategies", wrong],
        env={"PYTHONPATH": f"{HERE.parent / 'support'}:{HERE}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "unknown: nothing; there are prefill, generations" in done.stderr
