"""The limit of a gate follows what is measured, on a clock that the tests move."""

import pytest

from services.chassis.errors import Reason
from services.chassis.load.admission import (
    LEAST,
    LEAST_SAMPLES,
    LIFETIME_S,
    LONGEST_LIFETIME_S,
    NO_GROWTH_S,
    ROUND_S,
    STALE_S,
    QueueingSignal,
)
from tests.services.chassis.gate_harness import CALM, MUCH_QUEUEING, QUEUEING, GateHarness
from tests.support.fakes import FakeClock


def test_queueing_brings_the_limit_below_what_was_running(harness: GateHarness) -> None:
    harness.let_in(100)
    harness.measure(QUEUEING)
    assert harness.gate.limit == pytest.approx(80)
    refusal = harness.refusal()
    assert (refusal.reason, refusal.wire.http_status) == (Reason.SATURATED, 429)
    assert refusal.message == "The house is saturated right now. Please retry."


def test_running_ones_stay_whatever_the_limit_does(harness: GateHarness) -> None:
    harness.let_in(100)
    harness.measure(MUCH_QUEUEING)
    assert harness.gate.limit == 50
    assert harness.gate.running == 100


def test_few_slow_samples_among_quick_ones_are_no_queue(harness: GateHarness) -> None:
    harness.let_in(100)
    for _ in range(10):
        harness.measure(CALM)
        harness.signal.note(MUCH_QUEUEING, harness.clock.elapsed_s())
        harness.signal.note(MUCH_QUEUEING, harness.clock.elapsed_s())
    harness.let_in(1)


def test_a_few_samples_are_no_verdict(harness: GateHarness) -> None:
    harness.let_in(100)
    for _ in range(LEAST_SAMPLES - 1):
        harness.signal.note(MUCH_QUEUEING, harness.clock.elapsed_s())
        harness.clock.advance(ROUND_S)
    # Those of long ago have nothing to do with these.
    harness.clock.advance(STALE_S)
    harness.signal.note(MUCH_QUEUEING, harness.clock.elapsed_s())
    harness.let_in(1)


def test_one_burst_of_samples_is_no_verdict_before_its_round_is_over(harness: GateHarness) -> None:
    harness.let_in(100)
    for _ in range(10 * LEAST_SAMPLES):
        harness.signal.note(MUCH_QUEUEING, harness.clock.elapsed_s())
    harness.let_in(1)


def test_one_queue_is_punished_once(harness: GateHarness) -> None:
    harness.let_in(100)
    began_s = harness.clock.elapsed_s()
    harness.measure(QUEUEING)
    # What began before the cut is still measured long afterwards, and so is what begins before it is in force.
    for _ in range(3):
        for _ in range(LEAST_SAMPLES):
            harness.signal.note(MUCH_QUEUEING, began_s)
            harness.clock.advance(ROUND_S)
        harness.measure(MUCH_QUEUEING)
    assert harness.gate.limit == pytest.approx(80)
    harness.let_out(20)
    harness.measure(QUEUEING)
    assert harness.gate.limit == pytest.approx(64)


def test_limit_counts_once_all_who_ran_at_the_cut_have_left_even_if_others_came(harness: GateHarness) -> None:
    harness.let_in(100)
    harness.measure(QUEUEING)
    for number in range(100):
        harness.let_out(1)
        harness.let_in(1, f"small {number}")
    harness.measure(QUEUEING)
    assert harness.gate.limit == pytest.approx(64)


def test_queue_of_those_who_were_let_in_is_cut_off_by_its_length(harness: GateHarness) -> None:
    waiting = QueueingSignal(harness.gate, harness.clock, tolerated_s=2.0)
    harness.let_in(200)
    # About ten a second come and go.
    for _ in range(300):
        harness.let_out(1)
        harness.let_in(1)
        harness.clock.advance(0.1)
    # They wait for two seconds and a half, which is half a second too long.
    harness.measure(1.25, signal=waiting)
    assert harness.gate.limit == pytest.approx(200 - 0.5 * 10, abs=1)


def test_limit_on_a_queue_grows_by_what_may_wait(harness: GateHarness) -> None:
    waiting = QueueingSignal(harness.gate, harness.clock, tolerated_s=0.5)
    harness.let_in(250)
    # About ten a second come and go.
    for _ in range(300):
        harness.let_out(1)
        harness.let_in(1)
        harness.clock.advance(0.1)
    harness.measure(QUEUEING)
    harness.let_out(50)
    harness.fill()
    limit, left_per_s = harness.gate.limit, harness.gate._left.per_s(harness.clock.elapsed_s())
    harness.clock.advance(NO_GROWTH_S)
    for _ in range(LEAST_SAMPLES):
        waiting.note(CALM, harness.clock.elapsed_s())
        harness.clock.advance(ROUND_S / 4)
    assert limit < harness.gate.limit <= limit + 0.5 * left_per_s


def test_all_who_are_seen_to_wait_are_cut_off_at_once(clock: FakeClock) -> None:
    harness = GateHarness(clock, count_waiting=lambda: 60)
    waiting = QueueingSignal(harness.gate, clock, tolerated_s=0.5)
    harness.let_in(200)
    for _ in range(300):
        harness.let_out(1)
        harness.let_in(1)
        clock.advance(0.1)
    harness.measure(QUEUEING, signal=waiting)
    # Five of them may wait.
    assert harness.gate.limit == pytest.approx(200 - 60 + 5, abs=1)


def test_limit_grows_while_it_is_used_up_and_nothing_queues(harness: GateHarness) -> None:
    harness.shrink_to(80)
    harness.fill()
    harness.measure(CALM)
    assert harness.gate.limit == pytest.approx(88)


def test_limit_that_is_not_needed_does_not_grow(harness: GateHarness) -> None:
    harness.shrink_to(80)
    harness.let_in(79)
    harness.measure(CALM)
    assert harness.gate.limit == pytest.approx(80)


def test_limit_recovers_after_an_overload(harness: GateHarness) -> None:
    harness.let_in(400)
    harness.measure(MUCH_QUEUEING)
    harness.let_out(200)
    harness.measure(MUCH_QUEUEING)
    assert harness.gate.limit == 100
    harness.let_out(harness.gate.running)
    harness.clock.advance(NO_GROWTH_S)
    for _ in range(5):
        harness.fill()
        harness.measure(CALM)
    assert harness.gate.limit > 400


def test_limit_is_never_cut_below_the_least(harness: GateHarness) -> None:
    harness.let_in(LEAST + 1)
    harness.measure(MUCH_QUEUEING)
    assert harness.gate.limit == LEAST


def test_so_few_are_never_the_reason_for_a_queue(harness: GateHarness) -> None:
    harness.let_in(LEAST)
    harness.measure(MUCH_QUEUEING)
    harness.let_in(100)


def test_limit_that_queues_even_at_the_least_is_lifted_where_that_is_measured(clock: FakeClock) -> None:
    told: list[bool] = []
    harness = GateHarness(clock, on_false_alarm=lambda: told.append(True))
    harness.shrink_to(LEAST)
    harness.let_in(LEAST)
    assert not told
    harness.measure(QUEUEING)
    assert told == [True]
    harness.let_in(100)


def test_limit_that_no_queue_confirms_is_gone_after_its_lifetime(harness: GateHarness) -> None:
    harness.let_in(400)
    harness.measure(MUCH_QUEUEING)
    harness.refusal()
    harness.clock.advance(LIFETIME_S)
    harness.let_in(400)


def test_limit_lasts_while_the_queue_does(harness: GateHarness) -> None:
    harness.let_in(400)
    for _ in range(40):
        harness.measure(QUEUEING)
    harness.refusal()


def test_limit_on_a_queue_lasts_until_it_is_in_force(harness: GateHarness) -> None:
    """However long those who are in take to leave, within reason."""
    waiting = QueueingSignal(harness.gate, harness.clock, tolerated_s=0.5)
    harness.let_in(100)
    harness.measure(QUEUEING, signal=waiting)
    harness.clock.advance(2 * LIFETIME_S)
    harness.refusal()
    harness.clock.advance(LONGEST_LIFETIME_S)
    harness.let_in(1)


def test_limit_found_by_one_key_is_that_of_this_key_alone(harness: GateHarness) -> None:
    harness.let_in(40, "slow")
    for _ in range(LEAST_SAMPLES):
        harness.signal.note(MUCH_QUEUEING, harness.clock.elapsed_s(), "slow")
        harness.clock.advance(ROUND_S)
    harness.refusal("slow")
    harness.let_in(100, "another")


def test_limit_found_by_several_keys_is_for_all(harness: GateHarness) -> None:
    harness.let_in(40, "slow")
    for number in range(LEAST_SAMPLES):
        harness.signal.note(MUCH_QUEUEING, harness.clock.elapsed_s(), f"key {number}")
        harness.clock.advance(ROUND_S)
    harness.refusal("another")


def test_growth_doubles_with_each_calm_round_in_a_row(harness: GateHarness) -> None:
    harness.shrink_to(80)
    limits = []
    for _ in range(4):
        harness.fill()
        harness.measure(CALM)
        limits.append(harness.gate.limit)
    assert limits == pytest.approx([88, 105.6, 147.84, 266.112])


def test_one_calm_signal_does_not_undo_what_another_measured(harness: GateHarness) -> None:
    other = QueueingSignal(harness.gate, harness.clock)
    harness.shrink_to(80)
    harness.fill()
    harness.measure(CALM, signal=other)
    assert harness.gate.limit == pytest.approx(80)
    # One that has fallen silent is not listened to for ever.
    harness.clock.advance(NO_GROWTH_S)
    harness.fill()
    harness.measure(CALM, signal=other)
    assert harness.gate.limit == pytest.approx(88)
