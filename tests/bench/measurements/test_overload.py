"""Verdicts on an overload, from figures that are made up."""

import pytest

from bench.clients import Outcome, Tally
from bench.measurements.overload import CURVE, verdict
from bench.report import Row


def row(case: str, share: float) -> Row:
    return Row(CURVE, case, {"of the peak %": share}, 0.0)


@pytest.mark.parametrize(("share", "said"), [(97.0, "kept"), (90.0, "BROKEN"), (40.0, "BROKEN")])
def test_verdict_says_whether_the_promise_was_kept(share: float, said: str) -> None:
    assert verdict([row("1x", 100.0), row("3x", share)]).endswith(f": {said}.")


def test_speed_is_that_of_all_keys_together() -> None:
    outcome = Outcome(2.0, [Tally(sent=10, done=6, refused=4), Tally(sent=2, done=2)], [1.0], [2.0], 0.0)
    assert (outcome.per_s("sent"), outcome.per_s("done"), outcome.per_s("refused")) == (6, 4, 2)


def test_times_of_a_step_in_which_no_chat_was_let_in_are_unknown() -> None:
    outcome = Outcome(2.0, [Tally(sent=10, refused=10)], [], [], 0.0)
    assert outcome.total_percentile_ms(99) is None
