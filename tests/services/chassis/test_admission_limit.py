"""How the limit of a gate follows what is measured, on a clock that the tests move."""

import pytest

from services.chassis.admission import LEAST
from services.chassis.errors import Reason
from services.chassis.queueing import LEAST_SAMPLES, NO_GROWTH_S, ROUND_S, STALE_S, Signal
from tests.fakes import FakeClock
from tests.services.chassis.gate_house import CALM, MUCH_QUEUEING, QUEUEING, House


def test_queueing_brings_the_limit_below_what_was_running(house: House) -> None:
    house.let_in(100)
    house.measure(QUEUEING)
    assert house.gate.limit == pytest.approx(80)
    refusal = house.refusal()
    assert (refusal.reason, refusal.wire.http_status) == (Reason.SATURATED, 429)
    assert refusal.message == "The house is saturated right now. Please retry."


def test_running_ones_stay_whatever_the_limit_does(house: House) -> None:
    house.let_in(100)
    house.measure(MUCH_QUEUEING)
    assert house.gate.limit == 50
    assert house.gate.running == 100


def test_few_slow_samples_among_quick_ones_are_no_queue(house: House) -> None:
    house.let_in(100)
    for _ in range(10):
        house.measure(CALM)
        house.signal.note(MUCH_QUEUEING, house.clock.elapsed_s())
        house.signal.note(MUCH_QUEUEING, house.clock.elapsed_s())
    house.let_in(1)


def test_a_few_samples_are_no_verdict(house: House) -> None:
    house.let_in(100)
    for _ in range(LEAST_SAMPLES - 1):
        house.signal.note(MUCH_QUEUEING, house.clock.elapsed_s())
        house.clock.advance(ROUND_S)
    # Those of long ago have nothing to do with these.
    house.clock.advance(STALE_S)
    house.signal.note(MUCH_QUEUEING, house.clock.elapsed_s())
    house.let_in(1)


def test_one_burst_of_samples_is_no_verdict_before_its_round_is_over(house: House) -> None:
    house.let_in(100)
    for _ in range(10 * LEAST_SAMPLES):
        house.signal.note(MUCH_QUEUEING, house.clock.elapsed_s())
    house.let_in(1)


def test_one_queue_is_punished_once(house: House) -> None:
    house.let_in(100)
    began_s = house.clock.elapsed_s()
    house.measure(QUEUEING)
    # What began before the cut is still measured long afterwards, and so is what begins before it is in force.
    for _ in range(3):
        for _ in range(LEAST_SAMPLES):
            house.signal.note(MUCH_QUEUEING, began_s)
            house.clock.advance(ROUND_S)
        house.measure(MUCH_QUEUEING)
    assert house.gate.limit == pytest.approx(80)
    house.let_out(20)
    house.measure(QUEUEING)
    assert house.gate.limit == pytest.approx(64)


def test_limit_counts_once_all_who_ran_at_the_cut_have_left_even_if_others_came(house: House) -> None:
    house.let_in(100)
    house.measure(QUEUEING)
    for number in range(100):
        house.let_out(1)
        house.let_in(1, f"small {number}")
    house.measure(QUEUEING)
    assert house.gate.limit == pytest.approx(64)


def test_queue_of_those_who_were_let_in_is_cut_off_by_its_length(house: House) -> None:
    waiting = Signal(house.gate, house.clock, tolerated_s=2.0)
    house.let_in(200)
    # About ten a second come and go.
    for _ in range(300):
        house.let_out(1)
        house.let_in(1)
        house.clock.advance(0.1)
    # They wait for two seconds and a half, which is half a second too long.
    house.measure(1.25, signal=waiting)
    assert house.gate.limit == pytest.approx(200 - 0.5 * 10, abs=1)


def test_limit_on_a_queue_grows_by_what_may_wait(house: House) -> None:
    waiting = Signal(house.gate, house.clock, tolerated_s=0.5)
    house.shrink_to(200)
    house.fill()
    for _ in range(300):
        house.let_out(1)
        house.fill()
        house.clock.advance(0.1)
    house.measure(CALM, signal=waiting)
    assert house.gate.limit == pytest.approx(200 + 0.5 * 10, abs=1)


def test_all_who_are_seen_to_wait_are_cut_off_at_once(clock: FakeClock) -> None:
    house = House(clock, count_waiting=lambda: 60)
    waiting = Signal(house.gate, clock, tolerated_s=0.5)
    house.let_in(200)
    for _ in range(300):
        house.let_out(1)
        house.let_in(1)
        clock.advance(0.1)
    house.measure(QUEUEING, signal=waiting)
    # Five of them may wait.
    assert house.gate.limit == pytest.approx(200 - 60 + 5, abs=1)


def test_limit_grows_while_it_is_used_up_and_nothing_queues(house: House) -> None:
    house.shrink_to(80)
    house.fill()
    house.measure(CALM)
    assert house.gate.limit == pytest.approx(88)


def test_limit_that_nobody_needs_does_not_grow(house: House) -> None:
    house.shrink_to(80)
    house.let_in(79)
    house.measure(CALM)
    assert house.gate.limit == pytest.approx(80)


def test_limit_recovers_after_an_overload(house: House) -> None:
    house.let_in(400)
    house.measure(MUCH_QUEUEING)
    house.let_out(200)
    house.measure(MUCH_QUEUEING)
    assert house.gate.limit == 100
    for _ in range(20):
        house.let_out(house.gate.running)
        house.fill()
        house.measure(CALM)
    assert house.gate.limit > 400


def test_limit_is_never_cut_below_the_least(house: House) -> None:
    house.let_in(LEAST + 1)
    house.measure(MUCH_QUEUEING)
    assert house.gate.limit == LEAST


def test_so_few_are_never_the_reason_for_a_queue(house: House) -> None:
    house.let_in(LEAST)
    house.measure(MUCH_QUEUEING)
    house.let_in(100)


def test_whoever_measures_is_told_when_it_queues_even_at_the_least(clock: FakeClock) -> None:
    told: list[bool] = []
    house = House(clock, on_least=lambda: told.append(True))
    house.shrink_to(LEAST)
    house.let_in(LEAST)
    assert not told
    house.measure(QUEUEING)
    assert told == [True]


def test_being_told_that_it_is_full_cuts_the_limit_once_and_holds_it(house: House) -> None:
    house.let_in(100)
    began_s = house.clock.elapsed_s()
    for _ in range(10):
        house.gate.turned_away(began_s, retry_after_s=None)
    assert house.gate.limit == pytest.approx(90)
    house.let_out(50)
    house.fill()
    house.measure(CALM)
    assert house.gate.limit == pytest.approx(90)
    house.clock.advance(NO_GROWTH_S)
    house.fill()
    house.measure(CALM)
    assert house.gate.limit == pytest.approx(99)


def test_one_calm_signal_does_not_undo_what_another_measured(house: House) -> None:
    other = Signal(house.gate, house.clock)
    house.shrink_to(80)
    house.fill()
    house.measure(CALM, signal=other)
    assert house.gate.limit == pytest.approx(80)
    # One that has fallen silent is not listened to for ever.
    house.clock.advance(NO_GROWTH_S)
    house.fill()
    house.measure(CALM, signal=other)
    assert house.gate.limit == pytest.approx(88)
