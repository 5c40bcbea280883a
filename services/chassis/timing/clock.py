"""The one place that asks what time it is."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The time of day, in UTC."""
        ...

    def elapsed_s(self) -> float:
        """Seconds since some moment; never goes back, and goes on while the machine is suspended."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def elapsed_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
