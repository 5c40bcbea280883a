"""Periods that an address chooses."""

from datetime import UTC, date, datetime

import pytest

from console.web.periods import Period, period_in
from console.web.zones import find_zone

NOW = datetime(2026, 11, 17, 3, 30, tzinfo=UTC)


TORONTO = find_zone("America/Toronto", NOW)


@pytest.mark.parametrize(
    ("query", "first", "last", "unit"),
    [
        ("", "2026-10-18", "2026-11-16", "day"),
        ("period=today", "2026-11-16", "2026-11-16", "hour"),
        ("period=7", "2026-11-10", "2026-11-16", "day"),
        ("period=month", "2026-11-01", "2026-11-16", "day"),
        ("period=last-month", "2026-10-01", "2026-10-31", "day"),
        ("period=custom&from=2026-01-01&to=2026-10-31", "2026-01-01", "2026-10-31", "month"),
        ("period=custom&from=2026-01-01&to=2190-10-31", "2026-01-01", "2026-11-16", "month"),
        ("period=nonsense", "2026-10-18", "2026-11-16", "day"),
        # The dates were changed, and the choice was not.
        ("period=30&was=30&from=2026-11-01&to=2026-11-05", "2026-11-01", "2026-11-05", "day"),
        # The choice was changed, and the dates are what they were.
        ("period=7&was=30&from=2026-10-18&to=2026-11-16", "2026-11-10", "2026-11-16", "day"),
    ],
)
def test_a_period_is_read_from_the_address(query: str, first: str, last: str, unit: str) -> None:
    period = period_in(dict(part.split("=") for part in query.split("&") if part), TORONTO, NOW)
    assert (period.first.isoformat(), period.last.isoformat(), period.unit, period.problem) == (first, last, unit, "")
    assert period_in(period.query, TORONTO, NOW) == period


@pytest.mark.parametrize("query", ["from=2026-02-30&to=2026-03-01", "from=2026-03-02&to=2026-03-01", "to=0001-01-01"])
def test_dates_that_make_no_period_are_said_to_be_wrong(query: str) -> None:
    period = period_in({"period": "custom", **dict(part.split("=") for part in query.split("&"))}, TORONTO, NOW)
    assert period.problem
    assert period.choice == "30"


def test_a_day_on_which_the_clock_changes_has_all_its_hours() -> None:
    autumn = Period("custom", date(2026, 11, 1), date(2026, 11, 1), TORONTO)
    assert len(autumn.columns) == 25
    spring = Period("custom", date(2026, 3, 8), date(2026, 3, 8), TORONTO)
    assert len(spring.columns) == 23
