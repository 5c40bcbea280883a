"""The only source of time."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Returns the time of day, in UTC."""
        ...

    def elapsed_s(self) -> float:
        """Returns seconds since some moment; it never goes back, and counts while the machine is suspended."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def elapsed_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
