"""How long credit lasts."""

from datetime import date

from console.account.usage import lasts_until

TODAY = date(2026, 11, 17)


DOLLAR = 1_000_000_000


def test_an_estimate_is_a_range_of_days_from_the_last_seven() -> None:
    steady = [DOLLAR] * 30
    assert lasts_until(10 * DOLLAR, steady, TODAY) == "27 November 2026"
    varied = [*[0] * 22, DOLLAR, 3 * DOLLAR, DOLLAR, 3 * DOLLAR, DOLLAR, 3 * DOLLAR, 2 * DOLLAR, 0]
    assert lasts_until(20 * DOLLAR, varied, TODAY) == "25\N{EN DASH}29 November 2026"
    assert lasts_until(10 * DOLLAR, [0] * 30, TODAY) == "No recent use"
    assert lasts_until(0, steady, TODAY) == "Used up"
    assert lasts_until(4000 * DOLLAR, steady, TODAY) == "More than a year"
