"""Verdicts on big prompts, from figures that are made up."""

import json
from collections.abc import Sequence

import pytest

from bench.measurements.big_prompt import MEASUREMENT, SIZES_BYTES, rows_of, verdict
from bench.measurements.gaps import Outcome, text_of
from bench.report import Row


@pytest.mark.parametrize(("growth_ms", "said"), [(-1.0, "kept"), (19.9, "kept"), (20.0, "BROKEN")])
def test_verdict_says_whether_the_promise_was_kept(growth_ms: float, said: str) -> None:
    rows = [
        Row(MEASUREMENT, case, {"p99 grows ms": growth_ms if case == "4 MB" else 99.0}, 0.0) for case in SIZES_BYTES
    ]
    assert verdict(rows).endswith(f": {said}.")


def rows_of_prompts(
    gaps_ms: Sequence[list[float]] = ([20.0], [20.0], [20.0], [20.0]),
    elapsed_s: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
    edge_s: Sequence[float] = (0.0, 0.0, 0.0, 0.0),
) -> list[Row]:
    """Rows of runs with one prompt of each size."""
    cpu_s = [{"edge": one_s, "router": 0.0} for one_s in edge_s]
    outcome = Outcome(list(gaps_ms), [0, 1, 1, 1], [0.0, 0.1, 0.1, 0.5], [0.0] * 4, list(elapsed_s), cpu_s)
    return list(rows_of(outcome))


def test_growth_is_that_beyond_the_undisturbed_streams() -> None:
    gaps_ms = [[20.0] * 98 + [25.0] * 2, [20.0] * 100, [20.0] * 100, [20.0] * 98 + [40.0] * 2]
    rows = rows_of_prompts(gaps_ms=gaps_ms)
    assert [row.figures["p99 grows ms"] for row in rows] == [0.0, -5.0, -5.0, 15.0]


def test_processor_time_of_a_prompt_is_that_beyond_the_streams() -> None:
    # The streams take half a second of processor time in every second.
    rows = rows_of_prompts(elapsed_s=[2.0, 2.0, 4.0, 4.0], edge_s=[1.0, 1.1, 2.2, 2.4])
    assert [row.figures["CPU ms a prompt: edge"] for row in rows] == [None, *map(pytest.approx, (100, 200, 400))]


def test_prompt_has_the_size_that_it_is_named_after() -> None:
    assert 1_000_000 <= len(json.dumps(text_of(1_000_000))) <= 1_200_000
