"""Accounts, as operators see and change them."""

import pytest

from services.auth.core.records.accounts import ClassAllowance
from services.metering.credit.ledger.spend import SpendLimits
from tests.console.auth_rows import OTHER_ACCOUNT_ID, OTHER_KEY_ID, SUSPENDED_ACCOUNT_ID
from tests.console.backends import not_answering
from tests.console.clock import NOW_US
from tests.console.harness import ConsoleHarness
from tests.console.metering import ACCOUNT_ID, DOLLAR

ACCOUNT = f"/operator/accounts/{OTHER_ACCOUNT_ID}"


def test_accounts_are_searched_and_show_their_credit(console: ConsoleHarness, session: str) -> None:
    answer = console.get("/operator/accounts?q=bernoulli", session)
    assert "Bernoulli &amp; Daughters" in answer.text
    assert "Menabrea Mills</a>" not in answer.text
    assert "$84.18" in answer.text
    assert "No account fits" in console.get("/operator/accounts?q=unknown", session).text


def test_auto_means_in_the_list_what_it_means_for_requests(console: ConsoleHarness, session: str) -> None:
    """The class that was chosen for it is not allowed any more."""
    console.auth.change_account(preferred_class="forte", allowed_classes=ClassAllowance(("mezzo",)))
    text = console.get(f"/operator/accounts?q={ACCOUNT_ID}", session).text
    assert '<td class="wide-only">mezzo</td>' in text


def test_while_metering_does_not_answer_accounts_are_shown_without_balances(
    console: ConsoleHarness, session: str
) -> None:
    console.backends.fail = {"CreditAdminService.ListBalances": not_answering()}
    for path, words in (
        ("/operator/accounts", "Credit cannot be shown"),
        (ACCOUNT, "Credit and usage cannot be shown"),
    ):
        answer = console.get(path, session)
        assert answer.status == 200
        assert words in answer.text


def test_a_new_account_leads_to_its_page(console: ConsoleHarness, session: str) -> None:
    answer = console.post("/operator/accounts", {"name": "New Ideas"}, session)
    assert "New Ideas" in console.get(answer.headers["location"], session).text
    assert console.post("/operator/accounts", {"name": ""}, session).status == 400


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/operator/accounts", {"name": "Acme"}),
        (f"{ACCOUNT}/limits", {"requests_per_minute": "5"}),
        (f"/operator/accounts/{SUSPENDED_ACCOUNT_ID}/resume", {}),
        ("/operator/users", {"name": "Grace"}),
        ("/operator/users/user_2/sign-in-link", {}),
        ("/operator/users/user_2/operator", {"is_operator": "yes"}),
        ("/operator/users/user_3/enable", {}),
        ("/operator", {}),
    ],
)
def test_what_grants_asks_again_who_it_is(
    console: ConsoleHarness, session: str, path: str, fields: dict[str, str]
) -> None:
    console.auth.grow_stale()
    answer = console.post(path, fields, session)
    assert answer.status == 403
    assert "Confirm that it is you" in answer.text


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (f"{ACCOUNT}/suspend", {}),
        (f"/operator/keys/{OTHER_KEY_ID}/revoke", {}),
        ("/operator/users/user_2/disable", {}),
        ("/operator/users/user_2/operator", {"is_operator": "no"}),
    ],
)
def test_what_removes_access_never_asks_again(
    console: ConsoleHarness, session: str, path: str, fields: dict[str, str]
) -> None:
    console.auth.grow_stale()
    assert console.post(path, fields, session).status == 303


def test_a_suspended_account_is_resumed(console: ConsoleHarness, session: str) -> None:
    path = f"/operator/accounts/{SUSPENDED_ACCOUNT_ID}"
    assert f"{path}/resume" in console.get(path, session).text
    assert console.post(f"{path}/resume", session=session).status == 303
    assert console.auth.account(SUSPENDED_ACCOUNT_ID).suspended_at_us is None


def test_an_operator_sets_what_an_account_may_use_and_spend(console: ConsoleHarness, session: str) -> None:
    assert console.post(f"{ACCOUNT}/classes", {"allowed": ["mezzo"]}, session).status == 303
    assert console.auth.account(OTHER_ACCOUNT_ID).allowed_classes == ClassAllowance(("mezzo",))
    assert console.post(f"{ACCOUNT}/classes", {"allowed": []}, session).status == 400
    answer = console.post(f"{ACCOUNT}/spend-limits", {"day": "5", "month": "", "total": ""}, session)
    assert answer.headers["location"] == f"{ACCOUNT}/spend-limits"
    assert console.metering.limits(account_id=OTHER_ACCOUNT_ID) == SpendLimits(day_nanos=5 * DOLLAR)
    [noted] = console.auth.events("spend_limits.change_requested")
    assert noted.account_id == OTHER_ACCOUNT_ID
    assert "0 % spent" in console.get(f"{ACCOUNT}/spend-limits", session).text
    assert console.post(f"{ACCOUNT}/spend-limits", {"day": "x", "month": "", "total": ""}, session).status == 400


def test_a_closed_account_is_shown_as_closed_and_cannot_be_resumed(console: ConsoleHarness, session: str) -> None:
    console.auth.change_account(suspended_at_us=NOW_US, closed_at_us=NOW_US)
    text = console.get(f"/operator/accounts/{ACCOUNT_ID}", session).text
    assert "It cannot be opened again" in text
    assert "/resume" not in text
