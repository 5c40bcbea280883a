"""Days and months of the model, from the calendar alone."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from services.metering.credit.ledger.spend import SpendLimits

PERIODS = ("day", "month", "total")


class Limit(NamedTuple):
    period: str
    nanos: int
    spent_nanos: int
    held_nanos: int


def by_period(limits: SpendLimits) -> list[tuple[str, int | None]]:
    return list(zip(PERIODS, (limits.day_nanos, limits.month_nanos, limits.total_nanos), strict=True))


def time_of(at_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)


def begin_of(period: str, at_us: int) -> tuple[int, ...]:
    """Names the day or the month of a time; in all, there is one."""
    at = time_of(at_us)
    return {"day": (at.year, at.month, at.day), "month": (at.year, at.month), "total": ()}[period]


def is_in(period: str, hour_us: int | None, at_us: int) -> bool:
    return hour_us is not None and begin_of(period, hour_us) == begin_of(period, at_us)


def end_of(period: str, at_us: int) -> datetime:
    """Returns the first midnight at which another day or month begins."""
    midnight = time_of(at_us).replace(hour=0, minute=0, second=0, microsecond=0)
    while begin_of(period, round(midnight.timestamp()) * 1_000_000) == begin_of(period, at_us):
        midnight += timedelta(days=1)
    return midnight
