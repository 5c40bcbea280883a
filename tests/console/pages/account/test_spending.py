"""Spend limits: what owners see and set, and what a rotated key inherits."""

import pytest

from protos.auth.v1 import auth_pb2
from protos.type.v1 import access_token_pb2
from services.chassis.errors import LegatoError, Reason
from services.metering.ledger.spend import SpendLimits
from tests.console.fakes.keys import SECRET
from tests.console.fakes.services import not_answering
from tests.console.harness import ConsoleHarness
from tests.console.metering import DOLLAR

KEY_ID = "key_0000000000000001"
PAGES = ("/credit/limits", f"/keys/{KEY_ID}/spend-limits")


def test_each_limit_is_shown_with_what_is_spent_of_it(console: ConsoleHarness) -> None:
    console.fakes.fill()
    answer = console.get("/credit/limits", console.fakes.sign_in())
    for shown in ("24 % spent", "84 % spent", "Nearly reached", "No limit", "Website chat", "Reached", 'value="84"'):
        assert shown in answer.text
    assert "is held for requests that run" in answer.text
    own = console.get(f"/keys/{KEY_ID}/spend-limits", console.fakes.sign_in()).text
    assert "23 % spent" in own
    assert "$1.40 a day and $5.20 a month" in own


def test_limits_are_set_in_dollars_and_removed_by_leaving_them_empty(console: ConsoleHarness) -> None:
    session = console.fakes.sign_in()
    console.fakes.add_key("Report")
    for path, key_id in zip(PAGES, ("", KEY_ID), strict=True):
        answer = console.post(path, {"day": "2.5", "month": "$40", "total": ""}, session)
        assert (answer.status, answer.headers["location"]) == (303, path)
        assert console.fakes.metering.limits(key_id) == SpendLimits(2_500_000_000, 40 * DOLLAR)
    console.post(PAGES[0], {"day": "", "month": "", "total": "0"}, session)
    assert console.fakes.metering.limits() == SpendLimits(total_nanos=0)


@pytest.mark.parametrize("typed", ["five", "-1", "1000001", "5,00"])
def test_a_mistyped_limit_changes_nothing_and_stays_in_the_form(console: ConsoleHarness, typed: str) -> None:
    answer = console.post("/credit/limits", {"day": typed, "month": "7", "total": ""}, console.fakes.sign_in())
    assert answer.status == 400
    assert f'value="{typed}"' in answer.text
    assert 'value="7"' in answer.text
    assert "SpendLimitService.SetSpendLimits" not in console.fakes.calls


def test_a_key_gets_no_more_than_the_account_and_the_page_says_so(console: ConsoleHarness) -> None:
    console.fakes.fill()
    answer = console.post(PAGES[1], {"day": "1.41", "month": "", "total": ""}, console.fakes.sign_in())
    assert answer.status == 400
    assert "cannot exceed the account" in answer.text
    assert console.fakes.metering.limits(KEY_ID) == SpendLimits(day_nanos=1_200_000_000)


def test_setting_limits_needs_a_recent_proof(console: ConsoleHarness) -> None:
    console.fakes.is_fresh = False
    answer = console.post("/credit/limits", {"day": "1", "month": "", "total": ""}, console.fakes.sign_in())
    assert "Confirm" in answer.text
    assert console.fakes.metering.limits() is None


@pytest.mark.parametrize("path", PAGES)
def test_others_than_owners_read_limits_and_have_no_form(console: ConsoleHarness, path: str) -> None:
    console.fakes.fill()
    console.fakes.role = access_token_pb2.ACCOUNT_ROLE_VIEWER
    answer = console.get(path, console.fakes.sign_in())
    assert answer.status == 200
    assert "% spent" in answer.text
    assert "Set the spend limits" not in answer.text


@pytest.mark.parametrize("path", [*PAGES, "/keys"])
def test_without_metering_pages_say_so(console: ConsoleHarness, path: str) -> None:
    console.fakes.fill()
    console.fakes.fail = {"SpendLimitService.ListSpendLimits": not_answering()}
    answer = console.get(path, console.fakes.sign_in())
    assert answer.status == 200
    assert path == "/keys" or "Metering is not answering" in answer.text


def test_the_list_of_keys_tells_how_much_of_a_limit_is_spent(console: ConsoleHarness) -> None:
    console.fakes.fill()
    answer = console.get("/keys", console.fakes.sign_in())
    for shown in ("100 % of limit", "23 % of limit", ", $1.20 a day, Nightly report"):
        assert shown in answer.text
    assert answer.text.count("At limit") == 1


def test_a_rotated_key_has_its_limits_before_its_secret_is_shown(console: ConsoleHarness) -> None:
    console.fakes.fill()
    session = console.fakes.sign_in()
    answer = console.post(f"/keys/{KEY_ID}/rotate", {"expires": "90", "form_id": "f1"}, session)
    assert SECRET in console.follow(answer, session).text
    new = console.fakes.keys[-1].key_id
    assert console.fakes.metering.limits(new) == SpendLimits(day_nanos=1_200_000_000)


def test_a_key_is_not_rotated_while_its_limits_are_not_known(console: ConsoleHarness) -> None:
    console.fakes.fill()
    console.fakes.fail = {"SpendLimitService.ListSpendLimits": not_answering()}
    answer = console.post(f"/keys/{KEY_ID}/rotate", {"expires": "90", "form_id": "f1"}, console.fakes.sign_in())
    assert answer.status == 503
    assert "There is no new key" in answer.text
    assert "KeyAdminService.RotateKey" not in console.fakes.calls


@pytest.mark.parametrize("error", [not_answering(), LegatoError(Reason.REQUEST_INVALID, "Not so.")])
def test_a_new_key_that_could_not_be_limited_is_revoked_and_never_shown(
    console: ConsoleHarness, error: LegatoError
) -> None:
    console.fakes.fill()
    console.fakes.fail = {"SpendLimitService.InheritSpendLimits": error}
    answer = console.post(f"/keys/{KEY_ID}/rotate", {"expires": "90", "form_id": "f1"}, console.fakes.sign_in())
    assert answer.status == 503
    assert SECRET not in answer.text
    assert console.fakes.keys[-1].state == auth_pb2.KEY_STATE_REVOKED
    assert console.fakes.find(KEY_ID).state == auth_pb2.KEY_STATE_ACTIVE
