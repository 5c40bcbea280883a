from itertools import count

import pytest

from services.chassis.load.gcra import LONGEST_DEBT_NS, MINUTE_NS, Buckets, Rate
from tests.support.fakes import FakeClock

SECOND_NS = MINUTE_NS // 60
# One every 20 ms.
FAST = Rate(3_000, 200)
# Tokens: a whole minute's worth may be taken at once.
WHOLE_MINUTE = Rate(1_000, 1_000)


@pytest.fixture
def buckets(clock: FakeClock) -> Buckets:
    return Buckets(clock)


def count_taken(buckets: Buckets, rate: Rate, units: int = 1) -> int:
    """Counts how often it is taken before a wait."""
    return next(number for number in count() if buckets.charge("a", rate, units))


def test_burst_is_let_through_and_not_one_more(buckets: Buckets) -> None:
    assert count_taken(buckets, FAST) == 200
    assert buckets.charge("a", FAST) == SECOND_NS // 50


@pytest.mark.parametrize("per_minute", [1, 7, 999, 1_000, 7_000, 123_457])
def test_burst_is_exact_where_intervals_are_no_whole_numbers(buckets: Buckets, per_minute: int) -> None:
    assert count_taken(buckets, Rate(per_minute, per_minute)) == per_minute


def test_after_the_burst_the_rate_holds_exactly(buckets: Buckets, clock: FakeClock) -> None:
    count_taken(buckets, FAST)
    taken = 0
    for _ in range(60_000 // 5):
        clock.advance(0.005)
        taken += buckets.charge("a", FAST) == 0
    assert taken == 3_000


@pytest.mark.parametrize("per_minute", [1, 7, 999, 7_000, 123_457, 900_000_000])
def test_minute_s_worth_is_never_had_in_less_than_a_minute(per_minute: int) -> None:
    assert Rate(per_minute, 1).interval_ns * per_minute >= MINUTE_NS


def test_what_is_refused_takes_nothing(buckets: Buckets, clock: FakeClock) -> None:
    rate = Rate(60, 1)
    buckets.charge("a", rate)
    assert {buckets.charge("a", rate) for _ in range(10)} == {SECOND_NS}
    clock.advance(1)
    assert buckets.charge("a", rate) == 0


def test_who_waits_as_long_as_told_is_let_in(buckets: Buckets, clock: FakeClock) -> None:
    rate = Rate(7, 1)
    for _ in range(5):
        assert buckets.charge("a", rate) == 0
        clock.advance(buckets.charge("a", rate) / SECOND_NS)


def test_buckets_do_not_take_from_each_other(buckets: Buckets) -> None:
    count_taken(buckets, FAST)
    assert buckets.charge("b", FAST) == 0


def test_several_at_once_take_as_many(buckets: Buckets) -> None:
    assert count_taken(buckets, WHOLE_MINUTE, 30) == 33
    assert buckets.charge("a", WHOLE_MINUTE, 10) == 0
    assert buckets.charge("a", WHOLE_MINUTE, 1) == MINUTE_NS // 1_000


def test_more_than_the_burst_is_taken_from_a_whole_bucket_alone_and_leaves_a_debt(
    buckets: Buckets, clock: FakeClock
) -> None:
    buckets.charge("a", WHOLE_MINUTE, 1)
    assert buckets.charge("a", WHOLE_MINUTE, 3_000) == MINUTE_NS // 1_000
    clock.advance(0.06)
    assert buckets.charge("a", WHOLE_MINUTE, 3_000) == 0
    # Two minutes' worth beyond the burst, and the one that is asked for now.
    assert buckets.charge("a", WHOLE_MINUTE, 1_000) == 3 * MINUTE_NS
    clock.advance(180)
    assert buckets.charge("a", WHOLE_MINUTE, 1_000) == 0


def test_what_takes_nothing_never_waits(buckets: Buckets) -> None:
    buckets.charge("a", WHOLE_MINUTE, 3_000)
    assert buckets.charge("a", WHOLE_MINUTE, 0) == 0


def test_debt_is_bounded() -> None:
    in_debt_ns = WHOLE_MINUTE.ahead_after_ns(0, 10**9)
    assert in_debt_ns == MINUTE_NS + LONGEST_DEBT_NS
    assert WHOLE_MINUTE.ahead_after_ns(in_debt_ns, 1) == in_debt_ns


def test_what_is_given_back_can_be_taken_again_and_no_more() -> None:
    ahead_ns = WHOLE_MINUTE.ahead_after_ns(0, 1_000)
    assert WHOLE_MINUTE.remaining(ahead_ns) == 0
    assert WHOLE_MINUTE.remaining(WHOLE_MINUTE.ahead_after_ns(ahead_ns, -400)) == 400
    assert WHOLE_MINUTE.ahead_after_ns(ahead_ns, -2_000) == 0


def test_parts_are_rounded_down_but_never_to_nothing() -> None:
    assert Rate(3_000, 200).divided_by(3) == Rate(1_000, 66)
    assert Rate(2, 1).divided_by(3) == Rate(1, 1)


def test_buckets_that_are_whole_are_forgotten(buckets: Buckets, clock: FakeClock) -> None:
    for number in range(50_000):
        buckets.charge(number, FAST)
        clock.advance(0.001)
    assert len(buckets) < 2_000


def test_there_are_never_more_than_so_many_and_the_emptiest_are_kept(clock: FakeClock) -> None:
    buckets = Buckets(clock, most=100)
    slow = Rate(1, 1)
    buckets.charge("a", Rate(1, 1_000), 1_000)
    for number in range(10_000):
        buckets.charge(number, slow)
        assert len(buckets) <= 100
    assert buckets.charge("a", slow)
