import random
from collections import Counter

from services.metering.credit.records import LONGEST_MS
from services.metering.reports.chat_times import Percentiles, bucket_of, percentiles_of


def test_percentiles_are_within_five_percent_of_those_of_the_times_themselves() -> None:
    dice = random.Random(7)
    for chats in (1, 2, 3, 10, 999):
        times_ms = sorted(round(dice.lognormvariate(7, 1.5)) + 20 for _ in range(chats))
        found = percentiles_of(Counter(map(bucket_of, times_ms)))
        assert found.chats == chats
        for percent, estimate_ms in ((50, found.p50_ms), (95, found.p95_ms)):
            exact_ms = times_ms[-(-chats * percent // 100) - 1]
            assert abs(estimate_ms - exact_ms) <= 0.05 * exact_ms, (chats, percent)


def test_no_time_is_too_short_or_too_long_for_a_bucket() -> None:
    for time_ms in (0, 1, LONGEST_MS):
        [bucket] = {bucket_of(time_ms)}
        assert abs(percentiles_of({bucket: 1}).p50_ms - max(1, time_ms)) <= 0.05 * time_ms


def test_nothing_measured_has_no_percentiles() -> None:
    assert percentiles_of({}) == Percentiles(0, 0, 0)
