"""The speed of a class in the last day, on a clock that the tests move."""

import pytest

from services.router.models.circuit_breaker import CircuitBreaker
from services.router.models.recent_speed import DAY_S, LEAST_ANSWERS, MARKED_EVERY_S, RecentSpeed
from tests.support.fakes import FakeClock


@pytest.fixture
def speed(clock: FakeClock) -> RecentSpeed:
    return RecentSpeed(clock)


@pytest.fixture
def breaker(clock: FakeClock) -> CircuitBreaker:
    return CircuitBreaker(clock)


def answer(
    clock: FakeClock,
    breaker: CircuitBreaker,
    *,
    first_s: float,
    rest_s: float,
    tokens: int,
    times: int = LEAST_ANSWERS,
    whole_s: float = 0.0,
) -> None:
    for _ in range(times):
        attempt = breaker.start_attempt(whole_s)
        clock.advance(first_s)
        attempt.begun()
        clock.advance(rest_s)
        attempt.finished(10, tokens)


def test_a_few_answers_tell_nothing(speed: RecentSpeed, breaker: CircuitBreaker, clock: FakeClock) -> None:
    answer(clock, breaker, first_s=0.4, rest_s=1, tokens=50, times=LEAST_ANSWERS - 1)
    assert speed.of([breaker]) is None


def test_the_wait_for_the_first_token_and_the_tokens_after_it_are_told_apart(
    speed: RecentSpeed, breaker: CircuitBreaker, clock: FakeClock
) -> None:
    answer(clock, breaker, first_s=0.4, rest_s=2, tokens=100)
    found = speed.of([breaker])
    assert found is not None
    assert found.answers == LEAST_ANSWERS
    # As exact as the buckets of the histogram.
    assert 0.25 < found.median_first_token_s <= 0.5
    assert found.tokens_per_s == pytest.approx(50)


def test_answers_that_come_whole_have_no_speed_of_their_tokens(
    speed: RecentSpeed, breaker: CircuitBreaker, clock: FakeClock
) -> None:
    answer(clock, breaker, first_s=2, rest_s=0, tokens=100)
    found = speed.of([breaker])
    assert found is not None
    assert found.tokens_per_s is None


def test_answers_that_were_asked_for_whole_tell_nothing_of_first_tokens(
    speed: RecentSpeed, breaker: CircuitBreaker, clock: FakeClock
) -> None:
    answer(clock, breaker, first_s=2.4, rest_s=0, tokens=100, whole_s=2.4)
    assert speed.of([breaker]) is None
    answer(clock, breaker, first_s=0.4, rest_s=2, tokens=100)
    found = speed.of([breaker])
    assert found is not None
    assert 0.25 < found.median_first_token_s <= 0.5
    assert found.tokens_per_s == pytest.approx(50)


def test_the_models_of_a_class_count_together(speed: RecentSpeed, clock: FakeClock) -> None:
    quick, slow = CircuitBreaker(clock), CircuitBreaker(clock)
    answer(clock, quick, first_s=0.4, rest_s=1, tokens=90, times=15)
    answer(clock, slow, first_s=4, rest_s=3, tokens=30, times=15)
    found = speed.of([quick, slow])
    assert found is not None
    assert found.answers == 30
    assert found.tokens_per_s == pytest.approx((15 * 90 + 15 * 30) / (15 * 1 + 15 * 3))


def test_answers_of_the_day_before_are_forgotten(speed: RecentSpeed, breaker: CircuitBreaker, clock: FakeClock) -> None:
    answer(clock, breaker, first_s=4, rest_s=4, tokens=40)
    for _ in range(int(DAY_S / MARKED_EVERY_S) + 2):
        assert speed.of([breaker]) is not None
        answer(clock, breaker, first_s=0.4, rest_s=1, tokens=100)
        clock.advance(MARKED_EVERY_S)
    found = speed.of([breaker])
    assert found is not None
    assert found.tokens_per_s == pytest.approx(100)
    clock.advance(DAY_S)
    speed.of([breaker])
    clock.advance(DAY_S)
    assert speed.of([breaker]) is None
