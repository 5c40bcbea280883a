"""The calls of the last five minutes, and those of them that failed."""

import pytest

from services.router.models.call_result import BASELINE, CallEnd, CallPlan, CallResult
from services.router.models.recent_health import PERIOD_S, PERIODS, RecentHealth
from services.router.prompts.calibration import CountedPrompt
from tests.services.router.harness import target
from tests.support.fakes import FakeClock

PLAN = CallPlan("forte", target("main"), BASELINE, CountedPrompt(10, False, "acct_1"), 1_000, 2_000)


class Model:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.health = RecentHealth(self.clock)

    def end(self, *ends: CallEnd) -> None:
        for end in ends:
            self.health.on_result(PLAN, CallResult(end, 1.0))

    @property
    def counts(self) -> tuple[int, int]:
        return self.health.recent_calls, self.health.recent_failures


@pytest.fixture
def model() -> Model:
    return Model()


def test_model_that_was_never_called_has_no_calls(model: Model) -> None:
    assert model.counts == (0, 0)


@pytest.mark.parametrize(
    ("end", "counts"),
    [
        (CallEnd.ANSWERED, (1, 0)),
        (CallEnd.LEFT, (1, 0)),
        (CallEnd.EMPTY, (1, 0)),
        (CallEnd.DECLINED, (1, 0)),
        (CallEnd.FAILED, (1, 1)),
        (CallEnd.CUT, (1, 1)),
        (CallEnd.GIVEN_UP, (0, 0)),
    ],
)
def test_call_counts_when_it_is_over_if_something_was_learned_of_the_model(
    end: CallEnd, counts: tuple[int, int], model: Model
) -> None:
    model.end(end)
    assert model.counts == counts


def test_counts_are_added_over_five_minutes_and_leave_with_their_period(model: Model) -> None:
    model.end(CallEnd.FAILED, CallEnd.ANSWERED)
    model.clock.advance(PERIOD_S)
    model.end(CallEnd.FAILED)
    model.clock.advance(PERIOD_S * (PERIODS - 2))
    model.end(CallEnd.ANSWERED)
    assert model.counts == (4, 2)
    model.clock.advance(PERIOD_S)
    assert model.counts == (2, 1)
    model.clock.advance(PERIOD_S)
    assert model.counts == (1, 0)


def test_model_without_calls_for_five_minutes_has_none_and_counts_anew(model: Model) -> None:
    model.end(CallEnd.FAILED)
    model.clock.advance(300)
    assert model.counts == (0, 0)
    model.end(CallEnd.ANSWERED)
    assert model.counts == (1, 0)


def test_busy_model_keeps_no_more_than_five_minutes(model: Model) -> None:
    for _ in range(1_000):
        model.end(CallEnd.ANSWERED)
        model.clock.advance(1)
    assert 290 <= model.counts[0] <= 300
