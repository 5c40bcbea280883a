from datetime import UTC, date, datetime, timedelta

import pytest

from console.account.usage import lasts_until
from console.display import words
from console.display.charts import bars, cost_chart, round_up
from console.display.snippets import snippets
from console.pages.account.overview import needing_attention
from protos.auth.v1 import auth_pb2
from protos.auth.v1 import users_pb2 as pb

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)
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


def test_an_estimate_is_a_range_of_days_from_the_last_seven() -> None:
    steady = [DOLLAR] * 30
    assert lasts_until(10 * DOLLAR, steady, NOW) == "27 November 2026"
    varied = [*[0] * 22, DOLLAR, 3 * DOLLAR, DOLLAR, 3 * DOLLAR, DOLLAR, 3 * DOLLAR, 2 * DOLLAR, 0]
    assert lasts_until(20 * DOLLAR, varied, NOW) == "25–29 November 2026"
    assert lasts_until(10 * DOLLAR, [0] * 30, NOW) == "No recent use"
    assert lasts_until(0, steady, NOW) == "Used up"
    assert lasts_until(4000 * DOLLAR, steady, NOW) == "More than a year"


def test_a_chart_draws_every_cost_and_tells_it() -> None:
    days = [date(2026, 11, day) for day in (15, 16, 17)]
    chart = cost_chart(days, {"forte": {days[0]: DOLLAR}, "mezzo": {days[0]: 2 * DOLLAR, days[2]: 1}})
    assert [series.name for series in chart.series] == ["mezzo", "forte"]
    assert chart.day_totals == [3 * DOLLAR, 0, 1]
    drawn = str(bars(chart))
    assert drawn.count("<rect") == 3
    assert "15 November 2026: mezzo $2.00, forte $1.00" in drawn


def test_names_in_a_chart_are_escaped() -> None:
    when = date(2026, 11, 17)
    assert "<b>" not in bars(cost_chart([when], {"<b>": {when: 1}}))


def test_many_series_are_drawn_in_five_colours_and_add_up() -> None:
    when = date(2026, 11, 17)
    chart = cost_chart([when], {f"class-{number}": {when: number} for number in range(1, 9)})
    assert len(chart.series) == 5
    assert chart.total == sum(range(1, 9))


@pytest.mark.parametrize(("nanos", "top"), [(0, 0), (1, 1), (3, 5), (180, 200), (501, 1000)])
def test_an_axis_ends_at_a_round_figure(nanos: int, top: int) -> None:
    assert round_up(nanos) == top


def test_examples_have_the_address_and_the_key() -> None:
    for snippet in snippets("https://api.example.ca/v1", "sk-legato-1"):
        assert "https://api.example.ca/v1" in snippet.text
        assert "sk-legato-1" in snippet.text
    compile(snippets("https://api.example.ca/v1")[1].text, "snippet", "exec")


def test_keys_that_expire_sleep_or_have_no_limit_are_pointed_out() -> None:
    def key(**values: timedelta) -> pb.AccountKey:
        made = auth_pb2.Key(name="k", state=auth_pb2.KEY_STATE_ACTIVE, requests_per_minute=1)
        made.create_time.FromDatetime(NOW)
        for name, value in values.items():
            getattr(made, name).FromDatetime(NOW + value)
        return pb.AccountKey(key=made)

    expiring = key(expire_time=timedelta(days=3))
    dormant = key(last_use_time=timedelta(days=-61))
    boundless = key()
    boundless.key.ClearField("requests_per_minute")
    found = needing_attention([key(), expiring, dormant, boundless], NOW)
    assert [item.words for item in found] == ["Expires soon", "Not used for a long time", "Neither expiry nor limit"]


def test_browsers_are_named() -> None:
    assert (
        words.browser_of("Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0") == "Firefox on Linux"
    )
    assert words.browser_of("curl/8") == "Unknown browser"
