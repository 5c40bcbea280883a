from datetime import UTC, date, datetime, timedelta

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


@pytest.mark.usefixtures("french")
def test_figures_are_written_as_canadians_write_them_in_french() -> None:
    written = [
        words.usd(1234 * DOLLAR + 560_000_000), words.usd(-8_400_000), words.credit(4_999_999_999),
        words.exact(1234 * DOLLAR + 1), words.product(12_345_600_000_000_000), words.number(1_234_567),
        words.number(0.25, 1), words.percent(0.123, 1), words.size(1536 * 1024),
    ]  # fmt: skip
    assert [text.replace("\N{NO-BREAK SPACE}", " ") for text in written] == [
        "1 234,56 $", "−0,00840 $", "4,99 $", "1 234,000000001 $", "12,3456 $", "1 234 567", "0,2", "12,3 %", "1,5 Mo",
    ]  # fmt: skip


def test_exact_amounts_have_all_their_decimals_and_thousands_apart() -> None:
    assert (words.exact(1234 * DOLLAR + 1), words.exact(-5 * DOLLAR)) == ("$1,234.000000001", "−$5.00")
    assert words.number(9_007_199_254_740_993) == "9,007,199,254,740,993"
    assert words.size(1) == "1 byte"


@pytest.mark.usefixtures("french")
def test_days_and_times_are_written_in_french() -> None:
    assert words.day_range(date(2026, 12, 1), date(2026, 12, 9)) == "1er–9 décembre 2026"
    assert words.day_range(date(2026, 11, 28), date(2026, 12, 9)) == "28 novembre – 9 décembre 2026"
    assert words.short_day(date(2026, 2, 1), year=True) == "1er févr. 2026"
    assert words.clock(datetime(2026, 2, 1, 9, 5, tzinfo=UTC)) == "9\N{NO-BREAK SPACE}h\N{NO-BREAK SPACE}05"
    assert words.in_words(timedelta(hours=1)) == "1\N{NO-BREAK SPACE}heure"
    assert words.listed(["a", "b", "c"]) == "a, b et c"


def test_browsers_are_named() -> None:
    assert (
        words.browser_of("Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0") == "Firefox on Linux"
    )
    assert words.browser_of("curl/8") == "Unknown browser"


def test_as_many_places_are_shown_as_amounts_have() -> None:
    assert words.exact_places(0) == words.exact_places(3 * DOLLAR // 10) == 2
    assert words.exact_places(DOLLAR // 1000, -1_500_000) == 4
    assert words.exact_places(1) == 9
    assert words.product_places(5 * 10**12, 10**15, 1_234) == 15
    assert (words.exact(DOLLAR, 4), words.product(5 * 10**14, 4)) == ("$1.0000", "$0.5000")


@pytest.mark.usefixtures("french")
def test_browsers_are_told_in_french() -> None:
    assert words.browser_words("Firefox on Linux") == "Firefox sur Linux"
    assert words.browser_words("Unknown browser") == "Navigateur inconnu"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.2, "1 second"),
        (90, "90 seconds"),
        (91, "2 minutes"),
        (3540, "59 minutes"),
        (3541, "1 hour"),
        (69_794, "19 hours and 24 minutes"),
    ],
)
def test_a_wait_is_told_in_units_that_people_use(seconds: float, told: str) -> None:
    assert words.wait_words(seconds) == told
