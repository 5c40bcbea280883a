"""The documented prices, against the price table that the service starts with."""

from pathlib import Path

import pytest

from services.metering.credit.prices import read_prices
from services.rules.usage import Usage

PRICES = read_prices(Path(__file__).parents[2] / "prices.toml").current

MILLION = 1_000_000
CENT_NANOS = 10_000_000


@pytest.mark.parametrize(
    ("class_id", "input_cents", "output_cents", "cached_input_cents"),
    [
        ("mezzo", 10, 21, 2),
        ("forte", 107, 345, 107),
        ("fortissimo", 345, 1725, 345),
    ],
)
def test_a_million_tokens_cost_what_is_documented(
    class_id: str, input_cents: int, output_cents: int, cached_input_cents: int
) -> None:
    price = PRICES[class_id]

    assert price.cost_nanos(Usage(prompt_tokens=MILLION)) == input_cents * CENT_NANOS
    assert price.cost_nanos(Usage(completion_tokens=MILLION)) == output_cents * CENT_NANOS
    assert price.cost_nanos(Usage(prompt_tokens=MILLION, cached_tokens=MILLION)) == cached_input_cents * CENT_NANOS


def test_every_class_that_can_be_asked_for_has_a_price() -> None:
    assert set(PRICES) == {"mezzo", "forte", "fortissimo"}
