"""Whom a gate lets in and when the others may come back, on a clock that the tests move."""

import math

import pytest

from services.chassis.load.admission import LATEST_RETRY_S, OVERCOMMITMENT
from tests.services.chassis.gate_harness import CALM, GateHarness
from tests.support.fakes import FakeClock


def test_everybody_is_let_in_while_nothing_queues(harness: GateHarness) -> None:
    harness.let_in(1000)
    harness.measure(CALM)
    harness.let_in(1000)
    assert harness.gate.running == 2000


def test_greedy_key_is_refused_where_a_small_one_is_let_in(harness: GateHarness) -> None:
    harness.shrink_to(80)
    harness.fill("greedy")
    assert harness.gate.running == 80
    harness.let_in(1, "small")
    harness.refusal("greedy")


def test_places_of_a_greedy_key_go_to_the_others_as_they_end(harness: GateHarness) -> None:
    harness.shrink_to(80)
    harness.fill("greedy")
    greedy = harness.places[:]
    harness.fill("small")
    assert harness.running_of("small") == 40
    for place in greedy[:40]:
        harness.refusal("greedy")
        place.release()
    # Each has its half of the limit, and keeps it.
    harness.fill("greedy")
    harness.fill("small")
    assert (harness.running_of("greedy"), harness.running_of("small")) == (40, 40)


def test_key_that_is_alone_has_the_whole_limit(harness: GateHarness) -> None:
    harness.shrink_to(80)
    harness.let_in(80)
    harness.refusal()


def test_even_small_keys_are_let_in_beyond_the_limit_so_far_only(harness: GateHarness) -> None:
    harness.shrink_to(80)
    for number in range(round(80 * OVERCOMMITMENT)):
        harness.let_in(1, f"key {number}")
    harness.refusal("one more")


def test_constant_is_never_passed_and_has_room_for_small_keys(clock: FakeClock) -> None:
    harness = GateHarness(clock, most=12)
    harness.let_in(1, "small")
    harness.fill("greedy")
    harness.fill("small")
    assert (harness.running_of("greedy"), harness.running_of("small")) == (7, 5)
    harness.refusal("a third")


def test_part_of_a_constant_is_shared_like_a_constant(clock: FakeClock) -> None:
    harness = GateHarness(clock, most=24)
    harness.gate.limit_places(lambda: 12)
    harness.let_in(1, "small")
    harness.fill("greedy")
    harness.fill("small")
    assert (harness.running_of("greedy"), harness.running_of("small")) == (7, 5)
    harness.refusal("a third")


def test_key_that_was_refused_finds_a_place_when_it_asks_again(clock: FakeClock) -> None:
    harness = GateHarness(clock, most=12)
    harness.fill("greedy")
    harness.refusal("quiet")
    for place in harness.places[:4]:
        place.release()
        harness.refusal("greedy")
    harness.let_in(1, "quiet")
    # It keeps finding one, though it runs nothing in between.
    for _ in range(10):
        harness.places.pop().release()
        clock.advance(LATEST_RETRY_S / 2)
        harness.fill("greedy")
        harness.let_in(1, "quiet")


def test_however_few_places_there_are_one_is_for_a_key_that_was_refused(clock: FakeClock) -> None:
    for most in range(2, 12):
        whole, part = GateHarness(clock, most=most), GateHarness(clock, most=2 * most)
        part.gate.limit_places(lambda most=most: most)  # type: ignore[misc]
        for harness in (whole, part):
            harness.fill("greedy")
            assert harness.gate.running == most
            harness.refusal("quiet")
            for _ in range(most):
                harness.let_out(1)
                harness.fill("greedy")
            harness.let_in(1, "quiet")


def test_places_for_a_key_that_does_not_ask_again_go_to_the_others(clock: FakeClock) -> None:
    harness = GateHarness(clock, most=12)
    harness.fill("greedy")
    harness.refusal("quiet")
    harness.let_out(12)
    clock.advance(LATEST_RETRY_S)
    harness.let_in(12, "greedy")


def test_key_that_is_alone_has_the_whole_constant(clock: FakeClock) -> None:
    harness = GateHarness(clock, most=3)
    harness.let_in(3)
    harness.refusal()


def test_place_is_given_back_once_however_often_that_is_said(harness: GateHarness) -> None:
    harness.let_in(2)
    with harness.gate.acquire("key") as place:
        place.release()
    place.release()
    assert harness.gate.running == 2


def test_nothing_is_kept_of_keys_that_run_nothing(harness: GateHarness) -> None:
    for number in range(100):
        harness.gate.acquire(f"key {number}").release()
    assert not harness.gate.running_by_key


def test_limit_that_the_server_tells_is_kept_and_shared(harness: GateHarness) -> None:
    harness.gate.announce(10)
    harness.fill("greedy")
    assert harness.gate.running == 10
    harness.let_in(1, "small")
    harness.gate.announce(math.inf)
    harness.let_in(100, "greedy")


def test_server_that_can_bear_no_chat_is_sent_one_all_the_same(harness: GateHarness) -> None:
    harness.gate.announce(-5)
    harness.let_in(1)
    harness.refusal()


@pytest.mark.parametrize(("dice", "retry_after_s"), [(0.0, 1.0), (0.5, 5.5), (1.0, 10.0)])
def test_retry_is_asked_for_late_and_at_different_times_where_no_chat_ends(
    clock: FakeClock, dice: float, retry_after_s: float
) -> None:
    harness = GateHarness(clock, most=10, dice=lambda: dice)
    harness.let_in(10)
    assert harness.refusal().retry_after_s == retry_after_s


def test_retry_is_asked_for_soon_where_many_leave(clock: FakeClock) -> None:
    harness = GateHarness(clock, most=10, dice=lambda: 1.0)
    for _ in range(100):
        harness.gate.acquire("key").release()
    harness.let_in(10)
    assert harness.refusal().retry_after_s == 2
