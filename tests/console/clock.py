"""The time of the console and of the services behind it, which stands still: figures of today and of this month are the
same on every day."""

import time
from datetime import UTC, datetime, timedelta
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

NOW: Final = datetime(2026, 10, 28, 15, tzinfo=UTC)
NOW_US: Final = int(NOW.timestamp()) * 1_000_000


class StandingClock:
    """A `Clock` whose date stands still. Spans pass: limits on requests and timeouts need them."""

    def now(self) -> datetime:
        return NOW

    def elapsed_s(self) -> float:
        return time.monotonic()


def stamp(when: datetime) -> Timestamp:
    made = Timestamp()
    made.FromDatetime(when)
    return made


def ago(**span: float) -> Timestamp:
    return stamp(NOW - timedelta(**span))


def hence(**span: float) -> Timestamp:
    return stamp(NOW + timedelta(**span))
