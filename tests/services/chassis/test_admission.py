"""The gate, on a clock that the tests move."""

import contextlib

import pytest

from services.chassis.admission import (
    LEAST,
    LEAST_SAMPLES,
    LONGEST_CLOSED_S,
    NO_GROWTH_S,
    OVERCOMMITMENT,
    ROUND_S,
    STALE_S,
    Gate,
    Place,
    Signal,
)
from services.chassis.errors import LegatoError, Reason
from tests.fakes import FakeClock

CALM = 0.5
QUEUEING = 1.25
MUCH_QUEUEING = 10.0


class House:
    """A gate with one signal, and whoever is in."""

    def __init__(self, clock: FakeClock, **options: object) -> None:
        self.clock = clock
        self.gate = Gate("The house", clock, **{"dice": lambda: 0.5, **options})  # type: ignore[arg-type]
        self.signal = Signal(self.gate, clock)
        self.places: list[Place] = []

    def let_in(self, count: int, key_id: str = "key") -> None:
        self.places += [self.gate.enter(key_id) for _ in range(count)]

    def let_out(self, count: int) -> None:
        for _ in range(count):
            self.places.pop(0).leave()

    def running_of(self, key_id: str) -> int:
        return self.gate.running_by_key[key_id]

    def measure(self, pressure: float, *, signal: Signal | None = None) -> None:
        """A whole round of samples that began just now."""
        for _ in range(LEAST_SAMPLES):
            (signal or self.signal).note(pressure, self.clock.elapsed_s())
            self.clock.advance(ROUND_S / (LEAST_SAMPLES // 2))

    def refusal(self, key_id: str = "key") -> LegatoError:
        with pytest.raises(LegatoError) as refused:
            self.gate.enter(key_id)
        return refused.value

    def fill(self, key_id: str = "key") -> None:
        """Until somebody with this key is refused."""
        with contextlib.suppress(LegatoError):
            while True:
                self.let_in(1, key_id)

    def shrink_to(self, limit: int) -> None:
        """As one mild cut of what was running does it, with nobody left inside."""
        self.let_in(round(limit / 0.8))
        self.measure(QUEUEING)
        self.let_out(self.gate.running)
        assert self.gate.limit == pytest.approx(limit)


@pytest.fixture
def house(clock: FakeClock) -> House:
    return House(clock)


def test_everybody_is_let_in_while_nothing_queues(house: House) -> None:
    house.let_in(1000)
    house.measure(CALM)
    house.let_in(1000)
    assert house.gate.running == 2000


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


def test_gate_is_closed_for_as_long_as_the_provider_asked(house: House) -> None:
    place = house.gate.enter("key")
    house.gate.turned_away(place.entered_s, retry_after_s=7)
    place.leave()
    house.clock.advance(2)
    assert house.refusal().retry_after_s == 5
    house.clock.advance(5)
    house.let_in(1)


def test_gate_is_not_closed_for_longer_than_a_minute(house: House) -> None:
    house.gate.turned_away(house.gate.enter("key").entered_s, retry_after_s=86_400)
    assert house.refusal().retry_after_s == LONGEST_CLOSED_S


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
