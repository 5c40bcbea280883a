"""What is taken for a queue at a model, on a clock that the tests move."""

import contextlib

import pytest

from services.chassis.admission import LEAST
from services.chassis.errors import LegatoError
from services.chassis.queueing import LEAST_SAMPLES, ROUND_S
from services.router.providers.base import Piece, ProviderUsage
from services.router.saturation import DOUBLED_WITHIN_S, QUEUEING_TOLERATED_S, Saturation, Visit
from tests.fakes import FakeClock

NORMAL_S = 0.1
SLOW_S = NORMAL_S + 1.2 * QUEUEING_TOLERATED_S
FIRST = Piece(contents=["Hello"])
MANY = 40


class Model:
    def __init__(self, clock: FakeClock, tolerated_s: float = QUEUEING_TOLERATED_S) -> None:
        self.clock = clock
        self.saturation = Saturation(clock, tolerated_s)
        self.running: list[Visit] = []

    @property
    def limit(self) -> float:
        return self.saturation.gate.limit

    def fill(self, count: int = MANY) -> None:
        """With chats that say nothing about how long they waited."""
        self.running += [self.saturation.enter("key", 100, is_whole=True) for _ in range(count)]

    def empty(self) -> None:
        for visit in self.running:
            visit.leave()
        self.running.clear()

    def answer(self, took_s: float, prompt_tokens: int = 100, *, times: int = 1) -> None:
        """Each of them is let in, waits for its first piece, and goes; of a key that is not refused for the others."""
        for _ in range(times):
            with self.saturation.enter("small", prompt_tokens) as visit:
                self.clock.advance(took_s)
                visit.begun(FIRST)

    def answer_whole(self, took_s: float, tokens: int, prompt_tokens: int = 100, *, times: int = 1) -> None:
        answer = Piece(usage=ProviderUsage(prompt_tokens, tokens, None), last=True)
        for _ in range(times):
            with self.saturation.enter("small", prompt_tokens, is_whole=True) as visit:
                self.clock.advance(took_s)
                visit.begun(answer)

    def is_limited(self) -> bool:
        return self.limit <= MANY


@pytest.fixture
def model(clock: FakeClock) -> Model:
    return Model(clock)


def test_model_that_answers_later_than_is_normal_for_it_is_saturated(model: Model) -> None:
    model.answer(NORMAL_S, times=LEAST_SAMPLES)
    model.fill()
    model.answer(SLOW_S, times=2 * LEAST_SAMPLES)
    with pytest.raises(LegatoError):
        model.saturation.enter("key", 100)


def test_model_that_is_always_slow_is_not_saturated(model: Model) -> None:
    model.fill()
    model.answer(3.0, times=5 * LEAST_SAMPLES)
    assert not model.is_limited()


def test_large_prompts_take_their_time_without_being_taken_for_a_queue(model: Model) -> None:
    model.answer(NORMAL_S, 100, times=LEAST_SAMPLES)
    model.fill()
    model.answer(2.0, 100_000, times=5 * LEAST_SAMPLES)
    assert not model.is_limited()


def test_some_slow_answers_among_quick_ones_are_not_taken_for_a_queue(model: Model) -> None:
    model.answer(NORMAL_S, times=LEAST_SAMPLES)
    model.fill()
    for _ in range(10):
        model.answer(NORMAL_S, times=3)
        model.answer(3.0, times=4)
    assert not model.is_limited()


def test_sizes_that_are_taken_for_the_same_may_differ_by_a_factor_of_two(model: Model) -> None:
    model.answer(1.0, 1024, times=LEAST_SAMPLES)
    model.fill()
    model.answer(1.9, 2047, times=5 * LEAST_SAMPLES)
    assert not model.is_limited()


def test_answers_in_one_piece_are_compared_with_those_of_their_length(model: Model) -> None:
    model.answer_whole(1.0, 64, times=LEAST_SAMPLES)
    model.fill()
    model.answer_whole(4.0, 1024, times=2 * LEAST_SAMPLES)
    assert not model.is_limited()
    with contextlib.suppress(LegatoError):
        model.answer_whole(3.0, 64, times=3 * LEAST_SAMPLES)
    assert model.is_limited()


def test_answers_in_one_piece_are_compared_with_those_to_prompts_of_their_size(model: Model) -> None:
    model.answer_whole(NORMAL_S, 64, prompt_tokens=100, times=LEAST_SAMPLES)
    model.fill()
    model.answer_whole(2.0, 64, prompt_tokens=100_000, times=5 * LEAST_SAMPLES)
    assert not model.is_limited()


def test_size_that_is_new_is_not_known_by_the_queue_in_which_it_was_first_seen(model: Model) -> None:
    model.answer_whole(1.0, 64, prompt_tokens=1000, times=LEAST_SAMPLES)
    model.fill()
    with contextlib.suppress(LegatoError):
        model.answer_whole(4.0, 32, prompt_tokens=500, times=3 * LEAST_SAMPLES)
    assert model.is_limited()


def test_model_that_does_not_begin_at_all_is_saturated(model: Model) -> None:
    model.answer(NORMAL_S, times=LEAST_SAMPLES)
    for _ in range(MANY):
        with contextlib.suppress(LegatoError):
            model.running.append(model.saturation.enter("key", 100))
        model.clock.advance(ROUND_S / 4)
    assert len(model.running) < MANY


def test_one_that_is_late_counts_once(model: Model) -> None:
    model.answer(NORMAL_S, times=LEAST_SAMPLES)
    model.fill()
    late = [model.saturation.enter("key", 100) for _ in range(LEAST_SAMPLES - 1)]
    model.clock.advance(10.0)
    model.fill(1)
    for visit in late:
        visit.begun(FIRST)
    model.clock.advance(ROUND_S)
    assert not model.is_limited()


def test_one_that_left_is_not_late(model: Model) -> None:
    model.answer(NORMAL_S, times=LEAST_SAMPLES)
    model.fill()
    for _ in range(3 * LEAST_SAMPLES):
        model.saturation.enter("key", 100).leave()
        model.clock.advance(ROUND_S)
    assert not model.is_limited()


def test_queue_that_is_always_there_does_not_become_normal(model: Model) -> None:
    model.answer(NORMAL_S, times=LEAST_SAMPLES)
    model.fill()
    model.answer(SLOW_S, times=2 * LEAST_SAMPLES)
    model.empty()
    model.fill(int(model.limit) - 1)
    limit = model.limit
    for _ in range(3):
        model.clock.advance(DOUBLED_WITHIN_S)
        model.answer(NORMAL_S + 0.8 * QUEUEING_TOLERATED_S, times=LEAST_SAMPLES)
    model.answer(SLOW_S, times=2 * LEAST_SAMPLES)
    assert model.limit < limit


def test_model_that_became_slower_for_good_is_known_as_such_after_a_while(model: Model) -> None:
    model.answer(NORMAL_S, times=LEAST_SAMPLES)
    for _ in range(5):
        model.clock.advance(DOUBLED_WITHIN_S)
        model.answer(2.0, times=LEAST_SAMPLES)
    model.fill()
    model.answer(2.0, times=5 * LEAST_SAMPLES)
    assert not model.is_limited()


def test_one_lucky_answer_does_not_become_normal(model: Model) -> None:
    model.fill()
    for _ in range(10):
        model.answer(NORMAL_S)
        model.answer(2.0, times=LEAST_SAMPLES)
    assert not model.is_limited()


def test_model_that_is_slow_with_next_to_no_load_is_measured_anew(model: Model) -> None:
    model.answer(NORMAL_S, times=LEAST_SAMPLES)
    while model.limit > LEAST:
        model.fill(LEAST + 1)
        model.answer(SLOW_S, times=2 * LEAST_SAMPLES)
        model.empty()
    model.fill(LEAST - 1)
    model.answer(SLOW_S, times=2 * LEAST_SAMPLES)
    for _ in range(20):
        model.empty()
        model.fill(int(model.limit))
        model.answer(SLOW_S, times=2 * LEAST_SAMPLES)
    assert model.limit > 2 * LEAST


def test_nothing_is_measured_where_it_is_switched_off(clock: FakeClock) -> None:
    model = Model(clock, tolerated_s=0)
    model.answer(NORMAL_S, times=LEAST_SAMPLES)
    model.fill()
    model.answer(SLOW_S, times=5 * LEAST_SAMPLES)
    assert not model.is_limited()


def test_word_of_a_provider_closes_it_for_a_time_and_leaves_no_limit_where_nothing_is_measured(
    clock: FakeClock,
) -> None:
    """Nothing would ever let it grow again."""
    model = Model(clock, tolerated_s=0.0)
    model.fill()
    model.running[0].turned_away(retry_after_s=2)
    with pytest.raises(LegatoError):
        model.fill(1)
    clock.advance(2)
    model.fill()

    assert not model.is_limited()
