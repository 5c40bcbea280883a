"""Signs of a queue at a model, on a clock that the tests move."""

import contextlib
import random

import pytest

from services.chassis.errors import LegatoError
from services.chassis.load.admission import LEAST_SAMPLES, ROUND_S
from services.router.providers.base import Piece, ProviderUsage
from services.router.routing.backoff import LEAST_PROBES
from services.router.routing.saturation import (
    DOUBLED_WITHIN_S,
    LATE_SAMPLES,
    LEAST_CHATS,
    ModelSaturation,
    ModelUse,
)
from tests.support.fakes import FakeClock

NORMAL_S = 0.1
QUEUEING_TOLERATED_S = 0.5
SLOW_S = NORMAL_S + 1.2 * QUEUEING_TOLERATED_S
FIRST = Piece(contents=["Hello"])
MANY = 40


class Model:
    def __init__(self, clock: FakeClock, tolerated_s: float = QUEUEING_TOLERATED_S) -> None:
        self.clock = clock
        self.saturation = ModelSaturation(clock, tolerated_s)
        self.running: list[ModelUse] = []
        # A limit that does not help is gone again after seconds.
        self.lowest_limit = self.limit

    @property
    def limit(self) -> float:
        return self.saturation.gate.limit

    def fill(self, count: int = MANY) -> None:
        """Adds chats that do not tell how long they waited."""
        self.running += [self.saturation.enter("key", 100, is_whole=True) for _ in range(count)]

    def refuse(self, retry_after_s: float | None) -> LegatoError:
        model_use = self.saturation.enter("key", 100)
        model_use.release()
        return self.saturation.turned_away(retry_after_s, model_use, "account")

    def empty(self) -> None:
        for model_use in self.running:
            model_use.release()
        self.running.clear()

    def answer(self, took_s: float, prompt_tokens: int = 100, *, times: int = 1) -> None:
        """Each of them is let in, waits for its first piece, and goes; of a key that is not refused for the others."""
        for number in range(times):
            model_use = self.saturation.enter(f"small {number}", prompt_tokens)
            self.clock.advance(took_s)
            model_use.begun(FIRST)
            self.lowest_limit = min(self.lowest_limit, self.limit)
            model_use.release()

    def answer_whole(self, took_s: float, tokens: int, prompt_tokens: int = 100, *, times: int = 1) -> None:
        answer = Piece(usage=ProviderUsage(prompt_tokens, tokens, None), last=True)
        for number in range(times):
            model_use = self.saturation.enter(f"small {number}", prompt_tokens, is_whole=True)
            self.clock.advance(took_s)
            model_use.begun(answer)
            self.lowest_limit = min(self.lowest_limit, self.limit)
            model_use.release()

    def was_limited(self) -> bool:
        return self.lowest_limit <= MANY


@pytest.fixture
def model(clock: FakeClock) -> Model:
    return Model(clock)


def test_model_that_answers_later_than_is_normal_for_it_is_saturated(model: Model) -> None:
    model.answer(NORMAL_S, times=LEAST_SAMPLES)
    model.fill()
    model.answer(SLOW_S, times=2 * LATE_SAMPLES)
    with pytest.raises(LegatoError):
        model.saturation.enter("key", 100)


def test_model_that_is_always_slow_is_not_saturated(model: Model) -> None:
    model.fill()
    model.answer(3.0, times=3 * LATE_SAMPLES)
    assert not model.was_limited()


def test_large_prompts_take_their_time_without_being_taken_for_a_queue(model: Model) -> None:
    model.answer(NORMAL_S, 100, times=LEAST_SAMPLES)
    model.fill()
    model.answer(2.0, 100_000, times=3 * LATE_SAMPLES)
    assert not model.was_limited()


def test_some_slow_answers_among_quick_ones_are_not_taken_for_a_queue(model: Model) -> None:
    model.answer(NORMAL_S, times=LEAST_SAMPLES)
    model.fill()
    for _ in range(10):
        model.answer(NORMAL_S, times=3)
        model.answer(3.0, times=4)
    assert not model.was_limited()


def test_sizes_that_are_taken_for_the_same_may_differ_by_a_factor_of_two(model: Model) -> None:
    model.answer(1.0, 1024, times=LEAST_SAMPLES)
    model.fill()
    model.answer(1.9, 2047, times=3 * LATE_SAMPLES)
    assert not model.was_limited()


def test_answers_in_one_piece_are_compared_with_those_of_their_length(model: Model) -> None:
    model.answer_whole(1.0, 64, times=LEAST_SAMPLES)
    model.fill()
    model.answer_whole(4.0, 1024, times=2 * LATE_SAMPLES)
    assert not model.was_limited()
    with contextlib.suppress(LegatoError):
        model.answer_whole(3.0, 64, times=3 * LATE_SAMPLES)
    assert model.was_limited()


def test_answers_in_one_piece_are_compared_with_those_to_prompts_of_their_size(model: Model) -> None:
    model.answer_whole(NORMAL_S, 64, prompt_tokens=100, times=LEAST_SAMPLES)
    model.fill()
    model.answer_whole(2.0, 64, prompt_tokens=100_000, times=3 * LATE_SAMPLES)
    assert not model.was_limited()


def test_size_that_is_new_is_not_known_by_the_queue_in_which_it_was_first_seen(model: Model) -> None:
    model.answer_whole(1.0, 64, prompt_tokens=1000, times=LEAST_SAMPLES)
    model.fill()
    with contextlib.suppress(LegatoError):
        model.answer_whole(4.0, 32, prompt_tokens=500, times=3 * LATE_SAMPLES)
    assert model.was_limited()


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
    for model_use in late:
        model_use.begun(FIRST)
    model.clock.advance(ROUND_S)
    assert not model.was_limited()


def test_one_that_left_is_not_late(model: Model) -> None:
    model.answer(NORMAL_S, times=LEAST_SAMPLES)
    model.fill()
    for _ in range(3 * LEAST_SAMPLES):
        model.saturation.enter("key", 100).release()
        model.clock.advance(ROUND_S)
    assert not model.was_limited()


def test_queue_that_is_always_there_does_not_become_normal(model: Model) -> None:
    model.answer(NORMAL_S, times=LEAST_SAMPLES)
    model.fill()
    for _ in range(3):
        model.clock.advance(DOUBLED_WITHIN_S)
        model.answer(NORMAL_S + 0.8 * QUEUEING_TOLERATED_S, times=LATE_SAMPLES)
    model.answer(SLOW_S, times=2 * LATE_SAMPLES)
    assert model.was_limited()


def test_model_that_became_slower_for_good_is_known_as_such_after_a_while(model: Model) -> None:
    model.answer(NORMAL_S, times=LEAST_SAMPLES)
    for _ in range(5):
        model.clock.advance(DOUBLED_WITHIN_S)
        model.answer(2.0, times=LEAST_SAMPLES)
    model.fill()
    model.answer(2.0, times=3 * LATE_SAMPLES)
    assert not model.was_limited()


def test_one_lucky_answer_does_not_become_normal(model: Model) -> None:
    model.fill()
    for _ in range(10):
        model.answer(NORMAL_S)
        model.answer(2.0, times=LEAST_SAMPLES)
    assert not model.was_limited()


def test_model_that_is_slow_with_next_to_no_load_is_measured_anew(model: Model) -> None:
    """A limit that does not help is lifted, and what is slow is normal then."""
    model.answer(NORMAL_S, times=LEAST_SAMPLES)
    refused = 0
    for _ in range(20 * LATE_SAMPLES):
        try:
            visits = [model.saturation.enter("key", 100) for _ in range(LEAST_CHATS)]
        except LegatoError:
            refused += 1
            visits = []
        model.clock.advance(SLOW_S)
        for model_use in visits:
            model_use.begun(FIRST)
            model_use.release()
    assert refused < 10 * LATE_SAMPLES
    assert not model.was_limited()


def test_those_that_are_overtaken_think_and_are_no_queue(model: Model) -> None:
    """Later chats begin before them, late as it is."""
    model.answer(NORMAL_S, times=LEAST_SAMPLES)
    dice = random.Random(1)
    running: list[tuple[float, ModelUse]] = []
    refused = 0
    for _ in range(600):
        model.clock.advance(0.1)
        now_s = model.clock.elapsed_s()
        for begins_s, model_use in [entry for entry in running if entry[0] <= now_s]:
            model_use.begun(FIRST)
            model_use.release()
            running.remove((begins_s, model_use))
        try:
            thinks = dice.random() < 0.9
            running.append((now_s + (dice.uniform(3, 12) if thinks else NORMAL_S), model.saturation.enter("key", 100)))
        except LegatoError:
            refused += 1
    assert refused < 30


def test_key_whose_chats_begin_slowly_does_not_close_the_model_for_others(model: Model) -> None:
    for number in range(2 * LATE_SAMPLES):
        model_use = model.saturation.enter(f"key {number}", 100)
        model.clock.advance(NORMAL_S)
        model_use.begun(FIRST)
        model_use.release()
    for _ in range(MANY):
        with contextlib.suppress(LegatoError):
            model.running.append(model.saturation.enter("slow", 100))
        model.clock.advance(0.1)
    for number in range(MANY):
        model_use = model.saturation.enter(f"key {number}", 100)
        model.clock.advance(NORMAL_S)
        model_use.begun(FIRST)
        model_use.release()


def test_nothing_is_measured_where_it_is_switched_off(clock: FakeClock) -> None:
    model = Model(clock, tolerated_s=0)
    model.answer(NORMAL_S, times=LEAST_SAMPLES)
    model.fill()
    model.answer(SLOW_S, times=3 * LATE_SAMPLES)
    assert not model.was_limited()


def test_word_of_a_server_leaves_room_for_probes_and_no_limit_once_one_is_answered(clock: FakeClock) -> None:
    model = Model(clock, tolerated_s=0.0)
    for _ in range(MANY):
        model.refuse(30)
    model.fill(LEAST_PROBES)
    with pytest.raises(LegatoError) as refused:
        model.fill(1)
    assert refused.value.retry_after_s is not None
    assert refused.value.retry_after_s <= 10
    model.running[0].begun(FIRST)
    model.fill()


def test_server_that_names_no_time_is_asked_by_everybody(clock: FakeClock) -> None:
    model = Model(clock, tolerated_s=0.0)
    assert model.refuse(None).retry_after_s is not None
    model.fill()
