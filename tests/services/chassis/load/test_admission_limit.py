"""The limit of a gate follows what is measured, on a clock that the tests move."""

import pytest

from services.chassis.errors import Reason
from services.chassis.load.admission import (
    LEAST,
    LEAST_SAMPLES,
    LIFETIME_S,
    NO_GROWTH_S,
    ROUND_S,
    STALE_S,
    QueueingSignal,
)
from tests.services.chassis.gate_harness import CALM, MUCH_QUEUEING, QUEUEING, GateHarness


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
        harness.signal.record(MUCH_QUEUEING)
        harness.signal.record(MUCH_QUEUEING)
    harness.let_in(1)


def test_a_few_samples_are_no_verdict(harness: GateHarness) -> None:
    harness.let_in(100)
    for _ in range(LEAST_SAMPLES - 1):
        harness.signal.record(MUCH_QUEUEING)
        harness.clock.advance(ROUND_S)
    # Those of long ago have nothing to do with these.
    harness.clock.advance(STALE_S)
    harness.signal.record(MUCH_QUEUEING)
    harness.let_in(1)


def test_one_burst_of_samples_is_no_verdict_before_its_round_is_over(harness: GateHarness) -> None:
    harness.let_in(100)
    for _ in range(10 * LEAST_SAMPLES):
        harness.signal.record(MUCH_QUEUEING)
    harness.let_in(1)


def test_one_queue_is_punished_once(harness: GateHarness) -> None:
    harness.let_in(100)
    harness.measure(QUEUEING)
    # What is measured before the cut is in force.
    for _ in range(3):
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
