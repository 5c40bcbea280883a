"""Days and calendar months in UTC: months are closed, archived and pruned."""

from datetime import UTC, datetime
from typing import NamedTuple

from services.metering.credit.records import DAY_US


def day_start_us(now_us: int) -> int:
    return now_us - now_us % DAY_US


def next_day_us(now_us: int) -> int:
    return day_start_us(now_us) + DAY_US


def month_start_us(now_us: int) -> int:
    moment = datetime.fromtimestamp(now_us // 1_000_000, UTC)
    return round(datetime(moment.year, moment.month, 1, tzinfo=UTC).timestamp()) * 1_000_000


def next_month_us(now_us: int) -> int:
    # 32 days after its first, the next month has begun.
    return month_start_us(month_start_us(now_us) + 32 * DAY_US)


class CalendarMonth(NamedTuple):
    start_us: int
    # Exclusive.
    ends_us: int

    def __str__(self) -> str:
        return f"{datetime.fromtimestamp(self.start_us // 1_000_000, UTC):%Y-%m}"

    @property
    def next(self) -> "CalendarMonth":
        return month_of(self.ends_us)

    @property
    def previous(self) -> "CalendarMonth":
        return month_of(self.start_us - DAY_US)


def month_of(at_us: int) -> CalendarMonth:
    return CalendarMonth(month_start_us(at_us), next_month_us(at_us))


def parse_month(text: str) -> CalendarMonth:
    """Reads YYYY-MM; raises ValueError."""
    begun = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
    return month_of(round(begun.timestamp()) * 1_000_000)


def months_before(at_us: int, count: int) -> CalendarMonth:
    """Returns the month that is so many before that of a time."""
    month = month_of(at_us)
    for _ in range(count):
        month = month.previous
    return month
