"""How long credit lasts."""

from datetime import UTC, datetime

from console.account.usage import lasts_until

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)


DOLLAR = 1_000_000_000


def test_an_estimate_is_a_range_of_days_from_the_last_seven() -> None:
    steady = [DOLLAR] * 30
    assert lasts_until(10 * DOLLAR, steady, NOW) == "27 November 2026"
    varied = [*[0] * 22, DOLLAR, 3 * DOLLAR, DOLLAR, 3 * DOLLAR, DOLLAR, 3 * DOLLAR, 2 * DOLLAR, 0]
    assert lasts_until(20 * DOLLAR, varied, NOW) == "25\N{EN DASH}29 November 2026"
    assert lasts_until(10 * DOLLAR, [0] * 30, NOW) == "No recent use"
    assert lasts_until(0, steady, NOW) == "Used up"
    assert lasts_until(4000 * DOLLAR, steady, NOW) == "More than a year"
