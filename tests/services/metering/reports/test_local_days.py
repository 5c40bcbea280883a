"""Days of time zones, from UTC hours."""

from datetime import UTC, datetime

import pytest

from services.chassis.errors import LegatoError
from services.metering.credit.records import DAY_US, HOUR_US
from services.metering.reports.local_days import UTC_DAYS, find_local_days


def us(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[arg-type, misc]


def test_no_zone_is_utc() -> None:
    assert find_local_days("", 0, DAY_US) is UTC_DAYS
    assert UTC_DAYS.start_us(3 * DAY_US) == 3 * DAY_US


def test_a_change_of_the_clock_is_found_to_the_hour() -> None:
    days = find_local_days("America/Toronto", us(2026, 3, 1), us(2026, 4, 1))
    assert days.offsets == ((us(2026, 3, 1), -5 * HOUR_US), (us(2026, 3, 8, 7), -4 * HOUR_US))
    # The day of the change has 23 hours.
    assert days.start_us(us(2026, 3, 8)) == us(2026, 3, 8, 5)
    assert days.start_us(us(2026, 3, 9)) == us(2026, 3, 9, 4)


@pytest.mark.parametrize(
    "zone", ["America/St_Johns", "Asia/Kolkata", "Mars/Olympus", "../../etc/passwd", "/etc", "America", "a" * 300]
)
def test_a_zone_that_hours_cannot_make_days_of_is_refused(zone: str) -> None:
    with pytest.raises(LegatoError) as refusal:
        find_local_days(zone, us(2026, 3, 1), us(2026, 4, 1))
    assert refusal.value.param == "time_zone"


def test_a_period_too_long_to_look_at_each_day_is_refused() -> None:
    with pytest.raises(LegatoError) as refusal:
        find_local_days("America/Toronto", us(1, 1, 1), us(9999, 1, 1))
    assert refusal.value.param == "start_time"
