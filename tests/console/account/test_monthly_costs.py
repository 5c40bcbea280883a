"""What was spent this month, against the same days of the month before."""

from datetime import UTC, date, datetime

from console.account.monthly_costs import MonthlyCosts, compare_months
from console.web.zones import find_zone
from legato_protos.metering.v1 import statements_pb2 as pb
from tests.console.clock import stamp

TORONTO = find_zone("America/Toronto", datetime(2026, 11, 17, tzinfo=UTC))


def days(*spent: tuple[date, int]) -> list[pb.LedgerDay]:
    return [pb.LedgerDay(start_time=stamp(TORONTO.midnight(when)), charged_nanos=nanos) for when, nanos in spent]


def test_the_same_days_of_both_months_are_compared() -> None:
    listed = days(
        (date(2026, 9, 30), 1), (date(2026, 10, 1), 10), (date(2026, 10, 17), 100), (date(2026, 10, 18), 1_000),
        (date(2026, 11, 1), 10_000), (date(2026, 11, 17), 100_000),
    )  # fmt: skip
    found = compare_months(listed, TORONTO, date(2026, 11, 17))
    assert found == MonthlyCosts(110_000, 110, date(2026, 10, 1), date(2026, 10, 17))
    assert found.more_nanos == 109_890


def test_of_a_shorter_month_all_days_are_compared_and_january_follows_december() -> None:
    of_march = compare_months(days((date(2026, 2, 28), 3), (date(2026, 3, 1), 5)), TORONTO, date(2026, 3, 31))
    assert of_march == MonthlyCosts(5, 3, date(2026, 2, 1), date(2026, 2, 28))
    of_january = compare_months(days((date(2025, 12, 1), 3), (date(2025, 12, 2), 4)), TORONTO, date(2026, 1, 1))
    assert of_january == MonthlyCosts(0, 3, date(2025, 12, 1), date(2025, 12, 1))
