"""Parses a provider's retry-after headers."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the delay in seconds; None if it is missing or invalid."""
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
    """Returns the seconds until an HTTP date."""
    try:
        moment = parsedate_to_datetime(value)
        return (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    except (ValueError, OverflowError):
        # Not a date, or out of range.
        return None
