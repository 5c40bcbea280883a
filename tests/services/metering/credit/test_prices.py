from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.errors import LegatoError, Reason
from services.chassis.settings import SettingsError
from services.metering.credit.prices import (
    LARGEST_PRICE_NANOS,
    Price,
    Prices,
    ScheduledVersion,
    parse_prices,
    read_prices,
)
from services.rules.usage import Usage

ROOT = Path(__file__).parents[4]

FORTE = Price(1_070_000_000, 1_070_000_000, 3_450_000_000)

WHOLE = """
[classes.mezzo]
input = "0.10"
cached_input = "0.02"
output = "0.21"
[classes.forte]
input = "1.07"
output = "3.45"
[classes.fortissimo]
input = "3.45"
output = "17.25"
"""


def test_price_file_of_the_house_has_the_documented_prices() -> None:
    assert read_prices(ROOT / "prices.toml").current == {
        "mezzo": Price(100_000_000, 20_000_000, 210_000_000),
        "forte": FORTE,
        "fortissimo": Price(3_450_000_000, 3_450_000_000, 17_250_000_000),
    }


def test_amounts_are_read_exactly_to_the_last_of_nine_decimals() -> None:
    prices = parse_prices(WHOLE.replace('"0.10"', '"0.037500001"')).current
    assert prices["mezzo"].input_nanos_per_million == 37_500_001


def test_every_mistake_is_named_by_its_key_at_once() -> None:
    text = """
    currency = "CAD"
    [classes.mezzo]
    input = 0.10
    output = "-1"
    cache = "0.02"
    [classes.forte]
    input = "1.0000000001"
    [classes.piano]
    input = "1"
    """
    with pytest.raises(SettingsError) as caught:
        parse_prices(text)
    named = [line.split(":")[0] for line in str(caught.value).splitlines()]
    assert sorted(named) == [
        "classes.forte.input",
        "classes.forte.output",
        "classes.fortissimo",
        "classes.mezzo.cache",
        "classes.mezzo.input",
        "classes.mezzo.output",
        "classes.piano",
        "currency",
    ]


@pytest.mark.parametrize("amount", ["1000000.000000001", "1e3", " 1", "1.", ".1", "NaN", "Infinity", "٣", "", "1_0"])
def test_an_amount_that_is_no_plain_price_is_a_mistake(amount: str) -> None:
    with pytest.raises(SettingsError, match=r"classes\.mezzo\.input: must"):
        parse_prices(WHOLE.replace('"0.10"', f'"{amount}"'))


@pytest.mark.parametrize("text", ["", "classes = 3", "[classes", "classes.mezzo = 1"])
def test_a_file_without_prices_is_a_mistake(text: str) -> None:
    with pytest.raises(SettingsError):
        parse_prices(text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"LEGATO_PRICES.*nowhere\.toml"):
        read_prices(tmp_path / "nowhere.toml")


def test_every_mistake_names_its_file(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(WHOLE.replace('"0.10"', '"free"').replace('"0.21"', '"much"'))
    with pytest.raises(SettingsError) as caught:
        read_prices(file)
    assert [line.split(": ")[:2] for line in str(caught.value).splitlines()] == [
        [str(file), "classes.mezzo.input"],
        [str(file), "classes.mezzo.output"],
    ]


def test_cost_is_rounded_once_and_up() -> None:
    # 1,070 + 1,070 + 3,450 nanos: three roundings would add up to more.
    price = Price(1_070, 1_070, 3_450)
    assert price.cost_nanos(Usage(prompt_tokens=2, cached_tokens=1, completion_tokens=1)) == 1
    assert FORTE.cost_nanos(Usage(1_000, 0, 500)) == 1_070_000 + 1_725_000
    assert FORTE.cost_nanos(Usage()) == 0


def test_cached_tokens_are_charged_at_their_own_price() -> None:
    assert Price(100_000_000, 20_000_000, 0).cost_nanos(Usage(prompt_tokens=10, cached_tokens=4)) == 6 * 100 + 4 * 20


tokens = st.integers(0, 10**9)
amounts = st.integers(0, LARGEST_PRICE_NANOS)


@given(st.builds(Price, amounts, amounts, amounts), tokens, tokens, tokens)
def test_cost_is_never_less_than_exact_and_less_than_a_nano_more(
    price: Price, prompt: int, cached: int, completion: int
) -> None:
    usage = Usage(prompt, min(prompt, cached), completion)
    exact_millionths = (
        (usage.prompt_tokens - usage.cached_tokens) * price.input_nanos_per_million
        + usage.cached_tokens * price.cached_input_nanos_per_million
        + usage.completion_tokens * price.output_nanos_per_million
    )
    assert 0 <= price.cost_nanos(usage) * 10**6 - exact_millionths < 10**6
    assert price.cost_nanos(usage) < 2**63


SCHEDULED = """
[[scheduled]]
valid_from = 2027-01-01T00:00:00Z
""" + WHOLE.replace("[classes.", "[scheduled.classes.").replace('"1.07"', '"2.00"')


def test_a_list_may_be_scheduled() -> None:
    file = parse_prices(WHOLE + SCHEDULED)
    new_year_us = 1_798_761_600_000_000
    assert file.valid_at(new_year_us - 1)["forte"] == FORTE
    assert file.valid_at(new_year_us)["forte"].input_nanos_per_million == 2_000_000_000


@pytest.mark.parametrize("time", ["2027-01-01", "2027-01-01T00:00:00", '"tomorrow"', "1"])
def test_a_schedule_names_a_time_with_its_offset(time: str) -> None:
    with pytest.raises(SettingsError, match=r"scheduled\[0\]\.valid_from: must be a time"):
        parse_prices(WHOLE + SCHEDULED.replace("2027-01-01T00:00:00Z", time))


def test_two_lists_cannot_be_valid_from_the_same_time() -> None:
    with pytest.raises(SettingsError, match="two lists have the same valid_from"):
        parse_prices(WHOLE + SCHEDULED + SCHEDULED)


def test_a_request_gets_the_version_of_its_time() -> None:
    prices = Prices(1, {1: {}, 2: {}, 3: {}}, [ScheduledVersion(100, 2), ScheduledVersion(200, 3)])
    assert [prices.version_at(now_us) for now_us in (0, 99, 100, 199, 200)] == [1, 1, 2, 2, 3]


def test_class_without_a_price_is_refused() -> None:
    with pytest.raises(LegatoError) as refusal:
        Prices(1, {1: {"forte": FORTE}}).of_version(1, "piano")
    assert refusal.value.reason is Reason.REQUEST_INVALID
