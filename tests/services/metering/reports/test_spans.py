import random

from services.metering.credit.calendar import month_start_us, next_month_us
from services.metering.credit.records import DAY_US, HOUR_US
from services.metering.reports.spans import span_start_us, starts_of

TODAY = 20_000 * DAY_US


def test_a_period_is_its_months_and_the_days_and_hours_around_them() -> None:
    dice = random.Random(3)
    for _ in range(500):
        start_us = TODAY + dice.randrange(1_000) * HOUR_US
        end_us = start_us + dice.choice([dice.randrange(1, 100), dice.randrange(1, 10_000)]) * HOUR_US
        starts = starts_of([(start_us, end_us)])
        parts = [(at_us, next_month_us(at_us)) for at_us in starts.get("month", [])]
        parts += [(at_us, at_us + DAY_US) for at_us in starts.get("day", [])]
        parts += [(at_us, at_us + HOUR_US) for at_us in starts.get("hour", [])]
        parts.sort()
        assert (parts[0][0], parts[-1][1]) == (start_us, end_us)
        assert [end for _, end in parts[:-1]] == [start for start, _ in parts[1:]]
        assert all(month_start_us(at_us) == at_us for at_us in starts.get("month", []))
        assert all(at_us % DAY_US == 0 for at_us in starts.get("day", []))
        assert len(starts.get("day", [])) < 62
        assert len(starts.get("hour", [])) < 48
    assert starts_of([(TODAY, TODAY)]) == {}


def test_a_time_is_in_an_hour_a_day_and_a_month() -> None:
    at_us = TODAY + 5 * HOUR_US + 7
    assert [span_start_us(span, at_us) for span in ("hour", "day")] == [TODAY + 5 * HOUR_US, TODAY]
    assert span_start_us("month", at_us) == month_start_us(at_us)
