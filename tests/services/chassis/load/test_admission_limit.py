"""How the limit of a gate follows what is measured, on a clock that the tests move."""

import pytest

from services.chassis.errors import Reason
from services.chassis.load.admission import LEAST, LIFETIME_S, LONGEST_LIFETIME_S
from services.chassis.load.queueing import LEAST_SAMPLES, NO_GROWTH_S, ROUND_S, STALE_S, QueueingSignal
from tests.services.chassis.gate_harness import CALM, MUCH_QUEUEING, QUEUEING, House
from tests.support.fakes import FakeClock


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
    waiting = QueueingSignal(house.gate, house.clock, tolerated_s=2.0)
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
    waiting = QueueingSignal(house.gate, house.clock, tolerated_s=0.5)
    house.let_in(250)
    # About ten a second come and go.
    for _ in range(300):
        house.let_out(1)
        house.let_in(1)
        house.clock.advance(0.1)
    house.measure(QUEUEING)
    house.let_out(50)
    house.fill()
    limit, left_per_s = house.gate.limit, house.gate._left.per_s(house.clock.elapsed_s())
    house.clock.advance(NO_GROWTH_S)
    for _ in range(LEAST_SAMPLES):
        waiting.note(CALM, house.clock.elapsed_s())
        house.clock.advance(ROUND_S / 4)
    assert limit < house.gate.limit <= limit + 0.5 * left_per_s


def test_all_who_are_seen_to_wait_are_cut_off_at_once(clock: FakeClock) -> None:
    house = House(clock, count_waiting=lambda: 60)
    waiting = QueueingSignal(house.gate, clock, tolerated_s=0.5)
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
    house.let_out(house.gate.running)
    house.clock.advance(NO_GROWTH_S)
    for _ in range(5):
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


def test_limit_that_queues_even_at_the_least_is_lifted_where_somebody_wants_to_know(clock: FakeClock) -> None:
    told: list[bool] = []
    house = House(clock, on_false_alarm=lambda: told.append(True))
    house.shrink_to(LEAST)
    house.let_in(LEAST)
    assert not told
    house.measure(QUEUEING)
    assert told == [True]
    house.let_in(100)


def test_limit_that_no_queue_confirms_is_gone_after_its_lifetime(house: House) -> None:
    house.let_in(400)
    house.measure(MUCH_QUEUEING)
    house.refusal()
    house.clock.advance(LIFETIME_S)
    house.let_in(400)


def test_limit_lasts_while_the_queue_does(house: House) -> None:
    house.let_in(400)
    for _ in range(40):
        house.measure(QUEUEING)
    house.refusal()


def test_limit_on_a_queue_lasts_until_it_is_in_force(house: House) -> None:
    """However long those who are in take to leave, within reason."""
    waiting = QueueingSignal(house.gate, house.clock, tolerated_s=0.5)
    house.let_in(100)
    house.measure(QUEUEING, signal=waiting)
    house.clock.advance(2 * LIFETIME_S)
    house.refusal()
    house.clock.advance(LONGEST_LIFETIME_S)
    house.let_in(1)


def test_limit_found_by_one_key_is_that_of_this_key_alone(house: House) -> None:
    house.let_in(40, "slow")
    for _ in range(LEAST_SAMPLES):
        house.signal.note(MUCH_QUEUEING, house.clock.elapsed_s(), "slow")
        house.clock.advance(ROUND_S)
    house.refusal("slow")
    house.let_in(100, "another")


def test_limit_found_by_several_keys_is_for_all(house: House) -> None:
    house.let_in(40, "slow")
    for number in range(LEAST_SAMPLES):
        house.signal.note(MUCH_QUEUEING, house.clock.elapsed_s(), f"key {number}")
        house.clock.advance(ROUND_S)
    house.refusal("another")


def test_growth_doubles_with_each_calm_round_in_a_row(house: House) -> None:
    house.shrink_to(80)
    limits = []
    for _ in range(4):
        house.fill()
        house.measure(CALM)
        limits.append(house.gate.limit)
    assert limits == pytest.approx([88, 105.6, 147.84, 266.112])


def test_one_calm_signal_does_not_undo_what_another_measured(house: House) -> None:
    other = QueueingSignal(house.gate, house.clock)
    house.shrink_to(80)
    house.fill()
    house.measure(CALM, signal=other)
    assert house.gate.limit == pytest.approx(80)
    # One that has fallen silent is not listened to for ever.
    house.clock.advance(NO_GROWTH_S)
    house.fill()
    house.measure(CALM, signal=other)
    assert house.gate.limit == pytest.approx(88)
