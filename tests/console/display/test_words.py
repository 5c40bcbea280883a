from datetime import date

import pytest

from console.display import words

DOLLAR = 1_000_000_000


@pytest.mark.parametrize(
    ("nanos", "shown"),
    [(0, "$0.00"), (5 * DOLLAR, "$5.00"), (1234 * DOLLAR, "$1,234.00"), (8_400_000, "$0.00840"), (1, "$0.000000001"),
     (-DOLLAR // 4, "−$0.25")],
)  # fmt: skip
def test_money_is_readable(nanos: int, shown: str) -> None:
    assert words.usd(nanos) == shown


def test_credit_is_never_shown_as_more_than_there_is() -> None:
    assert words.credit(4_999_999_999) == "$4.99"


def test_days_are_shown_as_a_range() -> None:
    assert words.day_range(date(2026, 12, 3), date(2026, 12, 9)) == "3–9 December 2026"
    assert words.day_range(date(2026, 11, 28), date(2026, 12, 9)) == "28 November – 9 December 2026"
    assert words.day_range(date(2026, 12, 3), date(2026, 12, 3)) == "3 December 2026"


def test_browsers_are_named() -> None:
    assert (
        words.browser_of("Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0") == "Firefox on Linux"
    )
    assert words.browser_of("curl/8") == "Unknown browser"


def test_as_many_places_are_shown_as_amounts_have() -> None:
    assert words.exact_places(0) == words.exact_places(3 * DOLLAR // 10) == 2
    assert words.exact_places(DOLLAR // 1000, -1_500_000) == 4
    assert words.exact_places(1) == 9
