"""An edge that runs late takes on no further chat."""

import asyncio
import time

import pytest

from edge.access.saturation import LATENESS_TOLERATED_S, LEAST_CHATS, RESERVE_TOLERATED_S, SAMPLE_EACH_S, EdgeSaturation
from services.chassis.errors import LegatoError, Reason
from services.chassis.load.admission import LEAST_SAMPLES
from services.chassis.timing.deadlines import SystemClock
from tests.support.fakes import FakeClock

WAIT_TIMEOUT_S = 60


def fill(saturation: EdgeSaturation, chats: int, key_id: str = "greedy") -> None:
    for _ in range(chats):
        saturation.gate.acquire(key_id)


def is_refused(saturation: EdgeSaturation, key_id: str = "greedy") -> bool:
    try:
        saturation.gate.acquire(key_id).release()
    except LegatoError:
        return True
    return False


def run_late(saturation: EdgeSaturation, clock: FakeClock, late_s: float) -> None:
    for _ in range(2 * LEAST_SAMPLES):
        clock.advance(SAMPLE_EACH_S)
        saturation.record_lateness(late_s)


def test_edge_that_runs_late_refuses_new_chats(clock: FakeClock) -> None:
    saturation = EdgeSaturation(clock)
    fill(saturation, 2 * LEAST_CHATS)
    run_late(saturation, clock, 1.1 * LATENESS_TOLERATED_S)
    with pytest.raises(LegatoError) as refused:
        saturation.gate.acquire("greedy")
    assert refused.value.reason is Reason.SATURATED
    assert refused.value.retry_after_s is not None
    assert not is_refused(saturation, "small")


def test_edge_that_is_in_time_refuses_no_chat(clock: FakeClock) -> None:
    saturation = EdgeSaturation(clock)
    fill(saturation, 2 * LEAST_CHATS)
    run_late(saturation, clock, 0.9 * LATENESS_TOLERATED_S)
    assert not is_refused(saturation)


def test_credit_that_is_held_late_is_a_queue_too(clock: FakeClock) -> None:
    saturation = EdgeSaturation(clock)
    fill(saturation, 2 * LEAST_CHATS)
    for _ in range(2 * LEAST_SAMPLES):
        clock.advance(SAMPLE_EACH_S)
        saturation.record_reserve(1.1 * RESERVE_TOLERATED_S)
    assert is_refused(saturation)


def test_nothing_is_refused_where_it_is_switched_off(clock: FakeClock) -> None:
    saturation = EdgeSaturation(clock, tolerated_s=0)
    fill(saturation, 2 * LEAST_CHATS)
    for _ in range(2 * LEAST_SAMPLES):
        clock.advance(SAMPLE_EACH_S)
        saturation.record_reserve(10.0)
    assert not is_refused(saturation)


async def test_lateness_of_a_real_loop_is_noticed() -> None:
    saturation = EdgeSaturation(SystemClock())
    saturation.start()
    fill(saturation, 2 * LEAST_CHATS)
    try:
        async with asyncio.timeout(WAIT_TIMEOUT_S):
            while not is_refused(saturation):
                # Whatever falls due meanwhile is run late.
                time.sleep(SAMPLE_EACH_S + 2 * LATENESS_TOLERATED_S)  # noqa: ASYNC251
                await asyncio.sleep(0)
    finally:
        saturation.close()


# A chat that comes now and then, as on any day.
STEPS_PER_S = round(1 / SAMPLE_EACH_S)
A_SECOND_OR_TWO_S = 2.0


def is_refused_after(saturation: EdgeSaturation, clock: FakeClock, seconds: float) -> bool:
    """Returns whether chats are refused after the machine is fast again."""
    for _ in range(round(seconds * STEPS_PER_S)):
        clock.advance(SAMPLE_EACH_S)
        saturation.record_lateness(0.001)
        saturation.record_reserve(0.005)
    return is_refused(saturation)


def test_stall_of_the_whole_machine_leaves_no_limit(clock: FakeClock) -> None:
    """All that ran meanwhile is late by as much, once."""
    saturation = EdgeSaturation(clock)
    fill(saturation, 4 * LEAST_CHATS)
    is_refused_after(saturation, clock, 1.0)
    clock.advance(1.0)
    saturation.record_lateness(1.0)
    for _ in range(40):
        saturation.record_reserve(1.0)
    for _ in range(3 * STEPS_PER_S):
        assert not is_refused_after(saturation, clock, SAMPLE_EACH_S)


def test_collections_of_garbage_leave_no_limit(clock: FakeClock) -> None:
    saturation = EdgeSaturation(clock)
    fill(saturation, 4 * LEAST_CHATS)
    for _ in range(30):
        clock.advance(0.2)
        saturation.record_lateness(0.2)
        assert not is_refused_after(saturation, clock, 0.3)


def test_limit_ends_a_second_or_two_after_a_noisy_neighbour_does(clock: FakeClock) -> None:
    saturation = EdgeSaturation(clock)
    fill(saturation, 4 * LEAST_CHATS)
    for _ in range(10 * STEPS_PER_S):
        clock.advance(SAMPLE_EACH_S)
        saturation.record_lateness(10 * LATENESS_TOLERATED_S)
    assert is_refused(saturation)
    assert not is_refused_after(saturation, clock, A_SECOND_OR_TWO_S)


def test_limit_ends_a_second_or_two_after_metering_is_quick_again(clock: FakeClock) -> None:
    saturation = EdgeSaturation(clock)
    fill(saturation, 4 * LEAST_CHATS)
    for _ in range(10 * STEPS_PER_S):
        clock.advance(SAMPLE_EACH_S)
        saturation.record_reserve(10 * RESERVE_TOLERATED_S)
    assert is_refused(saturation)
    assert not is_refused_after(saturation, clock, A_SECOND_OR_TWO_S)


def test_limit_ends_although_nothing_is_measured_any_more(clock: FakeClock) -> None:
    saturation = EdgeSaturation(clock)
    fill(saturation, 4 * LEAST_CHATS)
    run_late(saturation, clock, 10 * LATENESS_TOLERATED_S)
    assert is_refused(saturation)
    clock.advance(A_SECOND_OR_TWO_S)
    assert not is_refused(saturation)


def test_few_chats_are_measured_less_often_and_many_as_before(clock: FakeClock) -> None:
    saturation = EdgeSaturation(clock)
    assert saturation.sample_each_s > SAMPLE_EACH_S
    fill(saturation, LEAST_CHATS)
    assert saturation.sample_each_s == SAMPLE_EACH_S
