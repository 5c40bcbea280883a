"""The measurement of big prompts comes to its end, and says what it saw. How fast anything was is not judged here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.big_prompt import MEASUREMENT, SIZES_BYTES, rows_of, verdict
from bench.gaps import Outcome, text_of
from bench.report import Row

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300


def test_measurement_prints_one_table_and_a_verdict() -> None:
    command = [sys.executable, "-m", "bench.big_prompt", "--streams", "4", "--seconds", "0.3", "--rounds", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(case in done.stdout for case in SIZES_BYTES)
    assert "With prompts of 4 MB the p99 gap of other streams grows by" in done.stdout


@pytest.mark.parametrize(("growth_ms", "said"), [(-1.0, "kept"), (19.9, "kept"), (20.0, "BROKEN")])
def test_verdict_says_whether_the_promise_was_kept(growth_ms: float, said: str) -> None:
    rows = [
        Row(MEASUREMENT, case, {"p99 grows ms": growth_ms if case == "4 MB" else 99.0}, 0.0) for case in SIZES_BYTES
    ]
    assert verdict(rows).endswith(f": {said}.")


def test_growth_is_that_beyond_the_undisturbed_streams() -> None:
    gaps_ms = [[20.0] * 98 + [25.0] * 2, [20.0] * 100, [20.0] * 100, [20.0] * 98 + [40.0] * 2]
    rows = list(rows_of(Outcome(gaps_ms, [0, 1, 1, 1], [0.0, 0.1, 0.1, 0.5], [0.0] * 4)))
    assert [row.figures["p99 grows ms"] for row in rows] == [0.0, -5.0, -5.0, 15.0]


def test_prompt_has_the_size_that_it_is_named_after() -> None:
    assert 1_000_000 <= len(json.dumps(text_of(1_000_000))) <= 1_200_000
