"""When a model is passed over and when it is tried again, on a clock that the tests move."""

import pytest

from services.router.providers.base import ProviderUsage
from services.router.routing.health import (
    FAILURES_IN_A_ROW,
    FIRST_PAUSE_S,
    LEAST_OUTCOMES,
    LEAST_TRIAL_TIMEOUT_S,
    LONGEST_PAUSE_S,
    PAUSE_SPREAD,
    STEADY_S,
    WINDOW_S,
    Attempt,
    BreakerState,
    CircuitBreaker,
    UsageCheck,
    Violation,
    longest_output_tokens,
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


def test_figures_are_of_all_attempts_and_of_answers(health: CircuitBreaker, clock: FakeClock) -> None:
    attempts: list[Attempt] = [health.start_attempt() for _ in range(4)]
    for attempt in attempts[:3]:
        clock.advance(1)
        attempt.begun()
    attempts[3].failed()
    assert (health.attempts, health.failures, health.median_latency_s) == (4, 1, 2.0)


WINDOW, MAX_TOKENS, PROMPT_TOKENS = 200_000, 131_072, 10_000


def judge(told: list[Violation], took_s: float = 1.0, max_tokens: int = MAX_TOKENS) -> UsageCheck:
    return UsageCheck(WINDOW, max_tokens, PROMPT_TOKENS, lambda: took_s, told.append)


@pytest.mark.parametrize(
    ("usage", "output_tokens", "took_s"),
    [
        # As we count, and by vocabularies that are twice as large or half as large.
        ((10_000, 500, 0), 500, 0.1),
        ((20_000, 1_000, 0), 500, 0.1),
        ((5_000, 250, 0), 500, 0.1),
        # Cached, all of it.
        ((10_000, 500, 10_000), 500, 0.1),
        # A provider that puts much around a short prompt, and images and tools that count for more.
        ((26_000, 500, 0), 500, 0.1),
        ((40_000, 500, 0), 500, 0.1),
        # Thoughts that nobody sees: up to the limit that the model was given, at a pace that models have.
        ((10_000, 131_072, 0), 3, 60.0),
        ((10_000, 30_000, 0), 3, 1.0),
        ((10_000, 16_000, 0), 0, 0.01),
        # An answer that came from a cache of the provider's, at once.
        ((10_000, 120_000, 0), 110_000, 0.05),
        ((None, None, None), 500, 0.1),
    ],
)
def test_honest_usage_is_believed(usage: tuple[int, int, int], output_tokens: int, took_s: float) -> None:
    told: list[Violation] = []
    said = ProviderUsage(*usage)
    assert judge(told, took_s).believed(said, output_tokens) == said
    assert told == []


@pytest.mark.parametrize(
    ("usage", "believed", "violations"),
    [
        ((900_000_000, 3, 0), (None, 3, None), [Violation.PROMPT_TOKENS]),
        ((200_001, 3, 200_001), (None, 3, None), [Violation.PROMPT_TOKENS]),
        ((90_000, 3, 90_000), (None, 3, None), [Violation.PROMPT_TOKENS]),
        ((10_000, 900_000_000, 7), (10_000, None, 7), [Violation.COMPLETION_TOKENS]),
        # Three tokens that were seen, in a second: nobody thinks so fast.
        ((10_000, 131_072, 0), (10_000, None, 0), [Violation.COMPLETION_TOKENS]),
        ((10**9, 10**9, 0), (None, None, None), [Violation.PROMPT_TOKENS, Violation.COMPLETION_TOKENS]),
    ],
)
def test_impossible_usage_is_not_believed_and_is_told(
    usage: tuple[int, int, int], believed: tuple[int | None, ...], violations: list[Violation]
) -> None:
    told: list[Violation] = []
    assert judge(told).believed(ProviderUsage(*usage), 3) == ProviderUsage(*believed)
    assert told == violations


def test_more_than_the_model_was_allowed_is_not_believed_however_long_it_took() -> None:
    told: list[Violation] = []
    patient = judge(told, took_s=3600, max_tokens=100)
    assert patient.believed(ProviderUsage(10_000, 214, 0), 3).completion_tokens == 214
    assert patient.believed(ProviderUsage(10_000, 215, 0), 3).completion_tokens is None
    assert longest_output_tokens(100) == 214
