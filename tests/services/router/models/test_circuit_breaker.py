"""When a model is passed over and when it is tried again, on a clock that the tests move."""

import pytest

from services.router.models.circuit_breaker import (
    FAILURES_IN_A_ROW,
    FIRST_PAUSE_S,
    LEAST_OUTCOMES,
    LEAST_TRIAL_TIMEOUT_S,
    LONGEST_PAUSE_S,
    PAUSE_SPREAD,
    SLOW_LATENCIES,
    SLOW_LEAST_S,
    STEADY_S,
    WINDOW_S,
    Attempt,
    BreakerState,
    CircuitBreaker,
)
from tests.support.fakes import FakeClock

MIDDLE = 0.5


@pytest.fixture
def health(clock: FakeClock) -> CircuitBreaker:
    return CircuitBreaker(clock, dice=lambda: MIDDLE)


def fail(health: CircuitBreaker, times: int = 1) -> None:
    for _ in range(times):
        health.start_attempt().failed()


def open_breaker(health: CircuitBreaker) -> None:
    fail(health, FAILURES_IN_A_ROW)
    assert health.state is BreakerState.OPEN


def trial_that_fails(health: CircuitBreaker, clock: FakeClock, pause_s: float) -> None:
    """The pause is over after just that long."""
    clock.advance(pause_s - 0.01)
    assert not health.may_be_asked()
    clock.advance(0.01)
    assert health.may_be_asked()
    health.start_attempt().failed()


def test_model_is_passed_over_after_failures_in_a_row(health: CircuitBreaker) -> None:
    fail(health, FAILURES_IN_A_ROW - 1)
    assert health.may_be_asked()
    fail(health)
    assert (health.state, health.may_be_asked()) == (BreakerState.OPEN, False)


def test_an_answer_in_between_makes_a_new_row(health: CircuitBreaker) -> None:
    for _ in range(3):
        fail(health, FAILURES_IN_A_ROW - 1)
        health.start_attempt().begun()
    assert health.state is BreakerState.CLOSED


def test_model_that_says_no_works(health: CircuitBreaker) -> None:
    fail(health, FAILURES_IN_A_ROW - 1)
    health.start_attempt().declined()
    fail(health, FAILURES_IN_A_ROW - 1)
    assert health.state is BreakerState.CLOSED


def test_model_that_fails_half_of_the_time_is_passed_over(health: CircuitBreaker) -> None:
    for _ in range(LEAST_OUTCOMES // 2):
        assert health.may_be_asked()
        health.start_attempt().begun()
        health.start_attempt().failed()
    assert health.state is BreakerState.OPEN


def test_model_that_begins_every_answer_and_ends_none_is_passed_over(health: CircuitBreaker) -> None:
    for _ in range(LEAST_OUTCOMES // 2):
        attempt = health.start_attempt()
        attempt.begun()
        attempt.failed()
    assert health.state is BreakerState.OPEN


def test_share_of_failures_is_that_of_the_last_seconds(health: CircuitBreaker, clock: FakeClock) -> None:
    for _ in range(10 * LEAST_OUTCOMES):
        health.start_attempt().begun()
        health.start_attempt().failed()
        clock.advance(2 * WINDOW_S / LEAST_OUTCOMES)
    assert health.state is BreakerState.CLOSED


def test_one_chat_at_a_time_tries_a_model_after_the_pause(health: CircuitBreaker, clock: FakeClock) -> None:
    open_breaker(health)
    clock.advance(FIRST_PAUSE_S)
    assert (health.state, health.may_be_asked()) == (BreakerState.HALF_OPEN, True)
    trial = health.start_attempt()
    assert (health.state, health.may_be_asked()) == (BreakerState.HALF_OPEN, False)
    trial.begun()
    assert (health.state, health.may_be_asked()) == (BreakerState.CLOSED, True)


def test_pause_doubles_as_long_as_it_fails_up_to_a_bound(health: CircuitBreaker, clock: FakeClock) -> None:
    open_breaker(health)
    pause_s = FIRST_PAUSE_S
    while pause_s < LONGEST_PAUSE_S:
        trial_that_fails(health, clock, pause_s)
        pause_s *= 2
    for _ in range(2):
        trial_that_fails(health, clock, LONGEST_PAUSE_S)


def test_pauses_of_replicas_differ(clock: FakeClock) -> None:
    soon, late = CircuitBreaker(clock, dice=lambda: 0.0), CircuitBreaker(clock, dice=lambda: 1.0)
    open_breaker(soon)
    open_breaker(late)
    clock.advance(FIRST_PAUSE_S * (1 - PAUSE_SPREAD))
    assert (soon.may_be_asked(), late.may_be_asked()) == (True, False)
    clock.advance(FIRST_PAUSE_S * 2 * PAUSE_SPREAD)
    assert late.may_be_asked()


def test_model_that_comes_and_goes_is_given_longer_pauses_until_it_was_steady(
    health: CircuitBreaker, clock: FakeClock
) -> None:
    for pause_s in (FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S):
        open_breaker(health)
        clock.advance(pause_s - 0.01)
        assert not health.may_be_asked()
        clock.advance(0.01)
        health.start_attempt().begun()
    clock.advance(STEADY_S)
    open_breaker(health)
    clock.advance(FIRST_PAUSE_S)
    assert health.may_be_asked()


def test_chat_that_is_given_up_leaves_the_trial_to_the_next(health: CircuitBreaker, clock: FakeClock) -> None:
    open_breaker(health)
    clock.advance(FIRST_PAUSE_S)
    health.start_attempt().given_up()
    assert (health.state, health.may_be_asked()) == (BreakerState.HALF_OPEN, True)


def test_what_was_asked_before_the_breaker_opened_does_not_close_it_nor_make_the_pause_longer(
    health: CircuitBreaker, clock: FakeClock
) -> None:
    earlier = [health.start_attempt() for _ in range(2 * FAILURES_IN_A_ROW)]
    clock.advance(0.1)
    open_breaker(health)
    for attempt in earlier[:FAILURES_IN_A_ROW]:
        attempt.failed()
    clock.advance(FIRST_PAUSE_S)
    earlier[-1].begun()
    assert health.state is BreakerState.HALF_OPEN
    health.start_attempt().begun()
    # Nor does it open it again.
    for attempt in earlier[FAILURES_IN_A_ROW:]:
        attempt.failed()
    assert health.may_be_asked()


def test_model_that_answers_though_it_should_not_be_asked_is_back(health: CircuitBreaker, clock: FakeClock) -> None:
    open_breaker(health)
    attempt = health.start_attempt()
    clock.advance(0.1)
    attempt.begun()
    assert health.state is BreakerState.CLOSED


def test_failures_of_those_that_had_no_other_choice_do_not_put_off_the_trial(
    health: CircuitBreaker, clock: FakeClock
) -> None:
    open_breaker(health)
    fail(health, 100)
    clock.advance(FIRST_PAUSE_S)
    assert health.may_be_asked()


def test_change_is_told_once(clock: FakeClock) -> None:
    told: list[BreakerState] = []
    health = CircuitBreaker(clock, told.append, lambda: MIDDLE)
    fail(health, 3 * FAILURES_IN_A_ROW)
    clock.advance(FIRST_PAUSE_S)
    for _ in range(3):
        health.start_attempt().begun()
    assert told == [BreakerState.OPEN, BreakerState.CLOSED]


def test_model_that_never_answered_has_no_latency(health: CircuitBreaker) -> None:
    fail(health)
    assert (health.median_latency_s, health.trial_timeout_s) == (None, None)


@pytest.mark.parametrize(("latency_s", "timeout_s"), [(0.1, LEAST_TRIAL_TIMEOUT_S), (20, 80)])
def test_slow_model_is_given_more_time_when_it_is_tried_out(
    latency_s: float, timeout_s: float, health: CircuitBreaker, clock: FakeClock
) -> None:
    attempt = health.start_attempt()
    clock.advance(latency_s)
    attempt.begun()
    assert health.trial_timeout_s == timeout_s
    assert health.first_token_timeout_s == max(30.0, 4 * latency_s)


def test_figures_are_of_all_attempts_and_of_answers(health: CircuitBreaker, clock: FakeClock) -> None:
    attempts: list[Attempt] = [health.start_attempt() for _ in range(4)]
    for attempt in attempts[:3]:
        clock.advance(1)
        attempt.begun()
    attempts[3].failed()
    assert (health.attempts, health.failures, health.median_latency_s) == (4, 1, 2.0)


@pytest.mark.parametrize("usual_s", [0.1, 5.0])
def test_model_is_slow_to_begin_while_a_chat_waits_clearly_longer_than_usual(
    usual_s: float, health: CircuitBreaker, clock: FakeClock
) -> None:
    usual = health.start_attempt()
    clock.advance(usual_s)
    usual.begun()
    waiting = health.start_attempt()
    clock.advance(max(SLOW_LEAST_S, SLOW_LATENCIES * usual_s) - 0.01)
    assert not health.is_slow_to_begin()
    clock.advance(0.02)
    assert health.is_slow_to_begin()
    waiting.given_up()
    assert not health.is_slow_to_begin()


def test_stream_that_waits_is_noticed_behind_an_answer_that_was_asked_for_whole(
    health: CircuitBreaker, clock: FakeClock
) -> None:
    usual = health.start_attempt()
    clock.advance(0.1)
    usual.begun()
    health.start_attempt(whole_s=7.0)
    clock.advance(SLOW_LEAST_S + 0.01)
    assert not health.is_slow_to_begin()
    health.start_attempt()
    clock.advance(SLOW_LEAST_S + 0.01)
    assert health.is_slow_to_begin()
    later = health.start_attempt(whole_s=0.5)
    clock.advance(0.5)
    later.begun()
    assert not health.is_slow_to_begin()


def test_chat_that_others_overtake_is_no_sign_of_a_slow_model(health: CircuitBreaker, clock: FakeClock) -> None:
    for _ in range(3):
        thinking = health.start_attempt()
        clock.advance(0.1)
        health.start_attempt().begun()
        clock.advance(10 * SLOW_LEAST_S)
        assert not health.is_slow_to_begin()
        thinking.begun()


def test_model_that_has_never_answered_is_not_called_slow(health: CircuitBreaker, clock: FakeClock) -> None:
    health.start_attempt()
    clock.advance(60)
    assert not health.is_slow_to_begin()
