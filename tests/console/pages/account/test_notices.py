"""The page of notices, over HTTP."""

from typing import Any

from services.auth.notices.records import DeliveryState
from services.chassis.access_tokens import AccountRole
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from tests.console.auth import WEBHOOK_SECRET_PATTERN, only_match
from tests.console.auth_rows import WEBHOOK_URL
from tests.console.harness import ConsoleHarness

PATH = "/settings/notices"


def test_the_page_shows_what_was_told_and_what_was_not_delivered(console: ConsoleHarness) -> None:
    console.backends.fill_notices()
    session = console.auth.sign_in()
    page = console.get(PATH, session)
    assert page.status == 200
    for words in (WEBHOOK_URL, "HTTP 503", "Send again", "$25.00", "where it had not been used before", "To one owner"):
        assert words.replace("&", "&amp;") in page.text
    failed = console.get(f"{PATH}?show=failed", session).text
    assert "daily spend limit" in failed
    assert "where it had not been used before" not in failed


def test_a_webhook_is_added_with_its_secret_shown_once_and_removed(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    made = console.follow(console.post(f"{PATH}/webhooks", {"url": "https://hooks.example.ca/a"}, session), session)
    assert made.status == 200
    secret = only_match(WEBHOOK_SECRET_PATTERN, made.text)
    page = console.get(PATH, session).text
    assert "https://hooks.example.ca/a" in page
    assert secret not in page
    [webhook] = console.auth.webhooks()
    assert webhook.secret == secret
    removed = console.post(f"{PATH}/webhooks/remove", {"webhook_id": webhook.webhook_id}, session)
    assert (removed.status, removed.headers["location"], console.auth.webhooks()) == (303, PATH, [])
    assert console.post(f"{PATH}/webhooks/remove", {"webhook_id": "whk_unknown"}, session).status == 400
    wrong = console.post(f"{PATH}/webhooks", {"url": "http://hooks.example.ca/a"}, session)
    assert wrong.status == 400
    assert "must start with https://" in wrong.text


def test_a_new_webhook_asks_for_proof_first(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    console.auth.grow_stale()
    answer = console.post(f"{PATH}/webhooks", {"url": "https://hooks.example.ca/a"}, session)
    assert "Confirm that it is you" in answer.text
    assert console.auth.webhooks() == []


def test_thresholds_are_set_to_the_nano_dollar_and_taken_back(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    for given, nanos in (("12.5", 12_500_000_000), ("$0.000000001", 1), ("0", 0)):
        assert console.post(f"{PATH}/low-balance", {"low_balance": given}, session).status == 303
        assert console.metering.low_balance_nanos() == nanos
    assert "no notice of a low balance" in console.get(PATH, session).text
    console.post(f"{PATH}/low-balance", {"low_balance": ""}, session)
    assert console.metering.low_balance_nanos() is None
    for wrong in ("much", "-1"):
        answer = console.post(f"{PATH}/low-balance", {"low_balance": wrong}, session)
        assert (answer.status, f'value="{wrong}"' in answer.text) == (400, True)


def test_what_is_mailed_is_chosen(console: ConsoleHarness) -> None:
    console.backends.fill_notices()
    session = console.auth.sign_in()
    chosen: Any = [("kind", "balance.low"), ("kind", "key.new_network")]
    console.post(f"{PATH}/mail", chosen, session)
    assert console.auth.muted_kinds() == {"spend_limit.near", "spend_limit.reached", "key.expires_soon"}


def test_an_owner_switches_their_own_mail_off_and_on(console: ConsoleHarness) -> None:
    console.backends.fill_notices()
    session = console.auth.sign_in()
    assert "Do not mail me" in console.get(PATH, session).text
    assert console.post(f"{PATH}/own-mail", {"own_mail": "off"}, session).status == 303
    assert not console.auth.wants_mail()
    assert "Mail me again" in console.get(PATH, session).text
    console.post(f"{PATH}/own-mail", {"own_mail": "on"}, session)
    assert console.auth.wants_mail()
    console.auth.change_user(email="")
    page = console.get(PATH, session).text
    assert "nothing is mailed to you" in page
    assert "own-mail" not in page


def test_a_test_is_sent_and_a_dead_letter_again(console: ConsoleHarness) -> None:
    console.backends.fill_notices()
    session = console.auth.sign_in()
    assert console.post(f"{PATH}/test", {}, session).status == 303
    assert "Nothing has happened." in console.get(PATH, session).text
    assert console.post(f"{PATH}/resend", {"delivery_id": "dlv_2a"}, session).status == 303
    assert console.auth.delivery("dlv_2a").state is DeliveryState.PENDING
    assert console.post(f"{PATH}/resend", {"delivery_id": "dlv_9"}, session).status == 400
    for _ in range(9):
        assert console.post(f"{PATH}/test", {}, session).status == 303
    refused = console.post(f"{PATH}/test", {}, session)
    assert (refused.status, "That is too often." in refused.text) == (400, True)


def test_without_metering_the_rest_of_the_page_works(console: ConsoleHarness) -> None:
    console.backends.fill_notices()
    console.backends.fail = {
        "NoticeThresholdService.GetLowBalance": LegatoError(Reason.UNAVAILABLE, Sentence.verbatim("Away."))
    }
    page = console.get(PATH, console.auth.sign_in())
    assert page.status == 200
    assert "The threshold cannot be shown right now" in page.text
    assert WEBHOOK_URL.replace("&", "&amp;") in page.text


def test_only_owners_have_the_page(console: ConsoleHarness) -> None:
    console.auth.set_role(AccountRole.MEMBER)
    assert console.get(PATH, console.auth.sign_in()).status == 403
