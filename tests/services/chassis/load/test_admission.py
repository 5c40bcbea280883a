"""Whom a gate lets in and when the others may come back, on a clock that the tests move."""

import math

import pytest

from services.chassis.load.admission import OVERCOMMITMENT
from tests.services.chassis.gate_harness import CALM, House
from tests.support.fakes import FakeClock


def test_everybody_is_let_in_while_nothing_queues(house: House) -> None:
    house.let_in(1000)
    house.measure(CALM)
    house.let_in(1000)
    assert house.gate.running == 2000


def test_greedy_key_is_refused_where_a_small_one_is_let_in(house: House) -> None:
    house.shrink_to(80)
    house.fill("greedy")
    assert house.gate.running == 80
    house.let_in(1, "small")
    house.refusal("greedy")


def test_places_of_a_greedy_key_go_to_the_others_as_they_end(house: House) -> None:
    house.shrink_to(80)
    house.fill("greedy")
    greedy = house.places[:]
    house.fill("small")
    assert house.running_of("small") == 40
    for place in greedy[:40]:
        house.refusal("greedy")
        place.leave()
    # Each has its half of the limit, and keeps it.
    house.fill("greedy")
    house.fill("small")
    assert (house.running_of("greedy"), house.running_of("small")) == (40, 40)


def test_key_that_is_alone_has_the_whole_limit(house: House) -> None:
    house.shrink_to(80)
    house.let_in(80)
    house.refusal()


def test_even_small_keys_are_let_in_beyond_the_limit_so_far_only(house: House) -> None:
    house.shrink_to(80)
    for number in range(round(80 * OVERCOMMITMENT)):
        house.let_in(1, f"key {number}")
    house.refusal("one more")


def test_constant_is_never_passed_and_has_room_for_small_keys(clock: FakeClock) -> None:
    house = House(clock, most=12)
    house.let_in(1, "small")
    house.fill("greedy")
    house.fill("small")
    assert (house.running_of("greedy"), house.running_of("small")) == (7, 5)
    house.refusal("a third")


def test_key_that_is_alone_has_the_whole_constant(clock: FakeClock) -> None:
    house = House(clock, most=3)
    house.let_in(3)
    house.refusal()


def test_place_is_given_back_once_however_often_that_is_said(house: House) -> None:
    house.let_in(2)
    with house.gate.enter("key") as place:
        place.leave()
    place.leave()
    assert house.gate.running == 2


def test_nothing_is_kept_of_keys_that_run_nothing(house: House) -> None:
    for number in range(100):
        house.gate.enter(f"key {number}").leave()
    assert not house.gate.running_by_key


def test_limit_that_the_server_tells_is_kept_and_shared(house: House) -> None:
    house.gate.told_limit = 10
    house.fill("greedy")
    assert house.gate.running == 10
    house.let_in(1, "small")
    house.gate.told_limit = math.inf
    house.let_in(100, "greedy")


def test_server_that_can_bear_nobody_is_sent_one_all_the_same(house: House) -> None:
    house.gate.told_limit = -5
    house.let_in(1)
    house.refusal()


@pytest.mark.parametrize(("dice", "retry_after_s"), [(0.0, 1.0), (0.5, 5.5), (1.0, 10.0)])
def test_retry_is_asked_for_late_and_at_different_times_where_nobody_leaves(
    clock: FakeClock, dice: float, retry_after_s: float
) -> None:
    house = House(clock, most=10, dice=lambda: dice)
    house.let_in(10)
    assert house.refusal().retry_after_s == retry_after_s


def test_retry_is_asked_for_soon_where_many_leave(clock: FakeClock) -> None:
    house = House(clock, most=10, dice=lambda: 1.0)
    for _ in range(100):
        house.gate.enter("key").leave()
    house.let_in(10)
    assert house.refusal().retry_after_s == 2
