import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.money import LARGEST_NANOS, format_usd, parse_usd

nanos = st.integers(min_value=-LARGEST_NANOS, max_value=LARGEST_NANOS)


@given(nanos)
def test_every_amount_survives_being_written_and_read(amount: int) -> None:
    assert parse_usd(format_usd(amount)) == amount


@given(nanos, nanos)
def test_amounts_that_differ_are_written_differently(one: int, other: int) -> None:
    assert (format_usd(one) == format_usd(other)) == (one == other)


@given(dollars=st.integers(0, 10**9), fraction=st.text("0123456789", min_size=1, max_size=9))
def test_a_decimal_is_read_digit_by_digit(dollars: int, fraction: str) -> None:
    assert parse_usd(f"{dollars}.{fraction}") == dollars * 10**9 + int(fraction) * 10 ** (9 - len(fraction))


@given(st.text())
def test_whatever_is_written_is_an_amount_or_refused(text: str) -> None:
    try:
        amount = parse_usd(text)
    except ValueError:
        return
    assert abs(amount) <= LARGEST_NANOS


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("5", 5_000_000_000),
        ("5.", 5_000_000_000),
        ("5.00", 5_000_000_000),
        ("+1.25", 1_250_000_000),
        ("-1.25", -1_250_000_000),
        (".5", 500_000_000),
        ("-.5", -500_000_000),
        ("-0.000000001", -1),
        ("0.1", 100_000_000),
        ("9223372036.854775807", LARGEST_NANOS),
    ],
)
def test_amounts_as_people_write_them(text: str, amount: int) -> None:
    assert parse_usd(text) == amount


@pytest.mark.parametrize(
    "text",
    [
        "", "-", ".", "-.", "1e3", "1E-3", "nan", "inf", "-inf", "0x10", "1_000", "1,5", "1 000", " 1", "1\n", "$5",
        "5$", "1.0000000000", "--1", "1.-1", "1.2.3", "٣", "½", "9223372036.854775808", "99999999999",
    ],
)  # fmt: skip
def test_what_is_not_an_exact_amount_of_nano_dollars_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="an amount must be"):
        parse_usd(text)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0.00"),
        (5_000_000_000, "5.00"),
        (4_999_999_999, "4.999999999"),
        (-1_250_000_000, "-1.25"),
        (-1, "-0.000000001"),
        (500_000_000, "0.50"),
        (120_000_000_000, "120.00"),
    ],
)
def test_money_is_printed_exactly_with_at_least_two_decimals(amount: int, text: str) -> None:
    assert format_usd(amount) == text
