"""The overview: a guide to a first request, then credit and use."""

from datetime import UTC, datetime, timedelta

from console.pages.account.overview import needing_attention
from legato_protos.auth.v1 import auth_pb2
from services.rules.usage import Usage
from tests.console.auth import KEY_PATTERN, only_match
from tests.console.clock import NOW_US
from tests.console.harness import API_URL, COOKIE, ConsoleHarness
from tests.console.metering import before_us, charge_of, settled

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)


def test_without_use_the_overview_guides_to_a_first_request(console: ConsoleHarness) -> None:
    answer = console.get("/", console.auth.sign_in())
    assert "Create a key and insert it" in answer.text
    assert f"{API_URL}/chat/completions" in answer.text
    assert "Last 30 days" not in answer.text


def test_the_guide_creates_a_key_and_puts_it_into_every_example(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    answer = console.follow(console.post("/first-key", {"form_id": "f1"}, session), session)
    assert answer.text.count(only_match(KEY_PATTERN, answer.text)) == 4
    assert "YOUR_KEY" not in answer.text
    # Nobody can have forgotten it yet.
    assert "Keys to look at" not in answer.text


def test_the_overview_adds_up_what_metering_says(console: ConsoleHarness) -> None:
    console.backends.fill()
    answer = console.get("/", console.auth.sign_in())
    total = console.metering.charged_nanos()
    exact = f"{total // 10**9}.{total % 10**9:09d}".rstrip("0")
    assert f'value="{exact}"' in answer.text


def test_credit_lasts_until_a_day_of_the_reader(console: ConsoleHarness) -> None:
    """The reader is in Auckland, where it is the 29th already. The estimate of steady use is a day."""
    holds = [
        settled(number, Usage(1_000_000), before_us(days=number), "key_0000000000000001", class_id="mezzo")
        for number in range(1, 10)
    ]
    console.metering.write(map(charge_of, holds), holds)
    console.metering.leave(10 * holds[0].charged_nanos)
    cookie = {"Cookie": f"{COOKIE}={console.auth.sign_in()}; legato-zone=Pacific/Auckland"}
    assert "8 November 2026" in console.get("/", headers=cookie).text


def test_a_suspended_account_is_told_why_no_key_works(console: ConsoleHarness) -> None:
    console.auth.change_account(suspended_at_us=NOW_US)
    assert "This account is suspended" in console.get("/", console.auth.sign_in()).text


def test_a_user_without_an_account_is_told_whom_to_ask(console: ConsoleHarness) -> None:
    console.auth.leave_account()
    assert "You belong to no account yet" in console.get("/", console.auth.sign_in()).text


def test_an_operator_without_an_account_is_led_to_the_operators_pages(console: ConsoleHarness) -> None:
    console.auth.leave_account()
    console.auth.be_operator()
    answer = console.get("/", console.auth.sign_in())
    assert (answer.status, answer.headers["location"]) == (303, "/operator")


def test_keys_that_expire_sleep_or_have_no_limit_are_pointed_out() -> None:
    def key(**values: timedelta) -> auth_pb2.Key:
        made = auth_pb2.Key(name="k", state=auth_pb2.KEY_STATE_ACTIVE, requests_per_minute=1)
        made.create_time.FromDatetime(NOW)
        for name, value in values.items():
            getattr(made, name).FromDatetime(NOW + value)
        return made

    expiring = key(expire_time=timedelta(days=3))
    dormant = key(last_use_time=timedelta(days=-61))
    boundless = key()
    boundless.ClearField("requests_per_minute")
    found = needing_attention([key(), expiring, dormant, boundless], NOW)
    assert [item.words for item in found] == ["Expires soon", "Not used for a long time", "Neither expiry nor limit"]
