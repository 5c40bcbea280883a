"""The reader's time zone."""

from datetime import UTC, date, datetime

import pytest

from console.web.zones import UTC_ZONE, find_zone

NOW = datetime(2026, 11, 17, 3, 30, tzinfo=UTC)


TORONTO = find_zone("America/Toronto", NOW)


def test_a_day_is_the_reader_s() -> None:
    assert (TORONTO.name, TORONTO.today(NOW)) == ("America/Toronto", date(2026, 11, 16))
    assert TORONTO.midnight(date(2026, 11, 16)) == datetime(2026, 11, 16, 5, tzinfo=UTC)
    assert UTC_ZONE.today(NOW) == date(2026, 11, 17)


@pytest.mark.parametrize("name", ["", "UTC", "Mars/Olympus", "../../etc/passwd", "America", "a" * 500, "<b>"])
def test_an_unknown_zone_is_utc(name: str) -> None:
    assert find_zone(name, NOW) is UTC_ZONE


@pytest.mark.parametrize("name", ["America/St_Johns", "Asia/Kolkata", "Australia/Lord_Howe"])
def test_days_of_a_zone_of_half_hours_are_utc_and_the_page_says_so(name: str) -> None:
    zone = find_zone(name, NOW)
    assert (zone.name, zone.info) == ("", UTC)
    assert name in zone.words
