"""When a provider wants to be asked again."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """In seconds; None where it does not say, or says nothing that can be understood."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "")
        seconds = _seconds_in(value, unit_s)
        if seconds is not None:
            return max(0.0, seconds)
    return None


def _seconds_in(value: str, unit_s: float) -> float | None:
    try:
        seconds = float(value) * unit_s
    except ValueError:
        return _seconds_until(value)
    return seconds if math.isfinite(seconds) else None


def _seconds_until(value: str) -> float | None:
    """HTTP allows for a date too."""
    try:
        moment = parsedate_to_datetime(value)
        return (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    except (ValueError, OverflowError):
        # No date, or one beyond all calendars.
        return None
