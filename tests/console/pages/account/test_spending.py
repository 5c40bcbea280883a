"""Spend limits: what owners see and set, and what a rotated key inherits."""

import re

import pytest

from services.chassis.access_tokens import AccountRole
from services.metering.credit.ledger.spend import SpendLimits
from tests.console.auth import KEY_PATTERN
from tests.console.backends import not_answering
from tests.console.harness import ConsoleHarness
from tests.console.metering import DOLLAR

KEY_ID = "key_0000000000000001"
PAGES = ("/credit/limits", f"/keys/{KEY_ID}/spend-limits")


def test_each_limit_is_shown_with_what_is_spent_of_it(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.metering.reach_limit("key_0000000000000002")
    answer = console.get("/credit/limits", console.auth.sign_in())
    for shown in ("24 % spent", "84 % spent", "Nearly reached", "No limit", "Website chat", "Reached", 'value="84"'):
        assert shown in answer.text
    assert "is held for requests that run" in answer.text
    own = console.get(f"/keys/{KEY_ID}/spend-limits", console.auth.sign_in()).text
    assert "23 % spent" in own
    assert "$1.40 a day and $5.20 a month" in own


def test_limits_are_set_in_dollars_and_removed_by_leaving_them_empty(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    console.auth.add_key("Report")
    for path, key_id in zip(PAGES, ("", KEY_ID), strict=True):
        answer = console.post(path, {"day": "2.5", "month": "$40", "total": ""}, session)
        assert (answer.status, answer.headers["location"]) == (303, path)
        assert console.metering.limits(key_id) == SpendLimits(2_500_000_000, 40 * DOLLAR)
    console.post(PAGES[0], {"day": "", "month": "", "total": "0"}, session)
    assert console.metering.limits() == SpendLimits(total_nanos=0)


@pytest.mark.parametrize("typed", ["five", "-1", "1000001", "5,00"])
def test_a_mistyped_limit_changes_nothing_and_stays_in_the_form(console: ConsoleHarness, typed: str) -> None:
    answer = console.post("/credit/limits", {"day": typed, "month": "7", "total": ""}, console.auth.sign_in())
    assert answer.status == 400
    assert f'value="{typed}"' in answer.text
    assert 'value="7"' in answer.text
    assert console.metering.limits() is None


def test_a_key_gets_no_more_than_the_account_and_the_page_says_so(console: ConsoleHarness) -> None:
    console.backends.fill()
    answer = console.post(PAGES[1], {"day": "1.41", "month": "", "total": ""}, console.auth.sign_in())
    assert answer.status == 400
    assert "cannot exceed the account" in answer.text
    assert console.metering.limits(KEY_ID) == SpendLimits(day_nanos=1_200_000_000)


@pytest.mark.parametrize(("path", "key_id"), [(PAGES[0], ""), (PAGES[1], KEY_ID)])
def test_a_limit_that_is_reached_already_is_asked_about_with_the_figures(
    console: ConsoleHarness, path: str, key_id: str
) -> None:
    console.backends.fill()
    session, before = console.auth.sign_in(), console.metering.limits(key_id)
    asked = console.post(path, {"day": "", "month": "0.1", "total": ""}, session)
    assert asked.status == 400
    assert re.search(r"\$\d+\.\d\d of \$0\.10 a month is spent: new requests are refused until the first", asked.text)
    assert "Set them all the same" in asked.text
    assert console.metering.limits(key_id) == before
    meant = {"day": "", "month": "0.1", "total": "", "reached": "on"}
    answer = console.post(path, meant, session)
    assert console.metering.limits(key_id) == SpendLimits(month_nanos=100_000_000)
    assert "One of them is reached: new requests are refused." in console.follow(answer, session).text
    # What was reached before is no surprise.
    again = console.post(path, {"day": "900", "month": "0.1", "total": ""}, session)
    assert again.status == (303 if not key_id else 400)


def test_setting_limits_needs_a_recent_proof(console: ConsoleHarness) -> None:
    console.auth.grow_stale()
    answer = console.post("/credit/limits", {"day": "1", "month": "", "total": ""}, console.auth.sign_in())
    assert "Confirm" in answer.text
    assert console.metering.limits() is None


@pytest.mark.parametrize(("path", "role"), [(PAGES[0], AccountRole.VIEWER), (PAGES[1], AccountRole.MEMBER)])
def test_others_than_owners_read_limits_and_have_no_form(console: ConsoleHarness, path: str, role: AccountRole) -> None:
    console.backends.fill()
    console.auth.set_role(role)
    answer = console.get(path, console.auth.sign_in())
    assert answer.status == 200
    assert "% spent" in answer.text
    assert "Set the spend limits" not in answer.text


@pytest.mark.parametrize("path", [*PAGES, "/keys"])
def test_without_metering_pages_say_so(console: ConsoleHarness, path: str) -> None:
    console.backends.fill()
    console.backends.fail = {"SpendLimitService.ListSpendLimits": not_answering()}
    answer = console.get(path, console.auth.sign_in())
    assert answer.status == 200
    assert path == "/keys" or "Spend limits cannot be shown right now" in answer.text


def test_the_list_of_keys_tells_how_much_of_a_limit_is_spent(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.metering.reach_limit("key_0000000000000002")
    answer = console.get("/keys", console.auth.sign_in())
    for shown in ("100 % of limit", "23 % of limit", ", $1.20 a day, Nightly report"):
        assert shown in answer.text
    assert answer.text.count("At limit") == 1


def test_a_rotated_key_has_its_limits_before_its_secret_is_shown(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    answer = console.post(f"/keys/{KEY_ID}/rotate", {"expires": "90", "form_id": "f1"}, session)
    assert KEY_PATTERN.search(console.follow(answer, session).text)
    new = console.auth.list_keys()[-1].key_id
    assert console.metering.limits(new) == SpendLimits(day_nanos=1_200_000_000)


def test_a_key_is_not_rotated_while_its_limits_are_not_known(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.backends.fail = {"SpendLimitService.ListSpendLimits": not_answering()}
    answer = console.post(f"/keys/{KEY_ID}/rotate", {"expires": "90", "form_id": "f1"}, console.auth.sign_in())
    assert answer.status == 503
    assert "so there is no new key" in answer.text
    assert console.auth.events("key.rotated") == []


def test_a_key_that_could_not_be_limited_like_the_old_one_is_not_created(console: ConsoleHarness) -> None:
    console.backends.fill()
    before = console.auth.list_keys()
    console.backends.fail = {"SpendLimitService.LimitKey": not_answering()}
    answer = console.post(f"/keys/{KEY_ID}/rotate", {"expires": "90", "form_id": "f1"}, console.auth.sign_in())
    assert answer.status == 503
    assert not KEY_PATTERN.search(answer.text)
    assert console.auth.list_keys() == before
