"""Times in records: microseconds since 1970, in UTC."""

from datetime import UTC, datetime, timedelta
from typing import Final

MINUTE_US: Final = 60_000_000
HOUR_US: Final = 60 * MINUTE_US
DAY_US: Final = 24 * HOUR_US

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def hour_of(now_us: int) -> int:
    """Returns the start of the hour: uses are recorded no more exactly than that."""
    return now_us // HOUR_US * HOUR_US
