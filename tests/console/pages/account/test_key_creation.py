"""New keys: created with all that limits them, or rotated, and shown once."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from services.auth.core.records.accounts import ClassAllowance, KeyLimits
from services.auth.core.times import DAY_US
from services.auth.keys.records import Scope
from services.auth.keys.rules.keys import IssuedKey
from services.auth.keys.servicers.keys import KeyAdminServicer
from services.chassis.access_tokens import AccountRole
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.metering.credit.ledger.spend import WHOLE_ACCOUNT, SpendLimits
from tests.console.auth import KEY_PATTERN, only_match
from tests.console.backends import not_answering
from tests.console.clock import NOW_US
from tests.console.harness import ConsoleHarness
from tests.console.metering import DOLLAR

LIMIT_KEY = "SpendLimitService.LimitKey"


def form(**given: str) -> dict[str, Any]:
    fields = {"name": "Report", "scope": "inference", "allowed": "mezzo", "expires": "never", "form_id": "f1"}
    return {**fields, "day": "2.50", "month": "", "total": "40", **given}


def test_a_key_has_its_spend_limits_before_it_is_created(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    made = console.post("/keys", form(), session)
    assert made.status == 303, made.text[-3000:]
    [key] = console.auth.list_keys()
    # The secret is on the page that the answer leads to, and is nowhere before.
    assert not KEY_PATTERN.search(made.text)
    limits = SpendLimits(day_nanos=2_500_000_000, total_nanos=40 * DOLLAR)
    assert console.metering.limits(key.key_id) == limits
    shown = console.follow(made, session).text
    secret = KEY_PATTERN.search(shown)
    assert secret is not None
    for name in ("ANTHROPIC_AUTH_TOKEN", "LEGATO_API_KEY"):
        assert f"export {name}={secret[0]}" in shown
    assert "$2.50 a day and $40.00 in all" in shown
    # One event has all that the key was created with.
    [event] = console.auth.events("key.created")
    changed = {change.field: change.after for change in event.changes or ()}
    assert (changed["spend_day_nanos"], changed["spend_total_nanos"]) == (2_500_000_000, 40 * DOLLAR)
    assert console.metering.recorded_changes() == []


@pytest.mark.parametrize("error", [not_answering(), LegatoError(Reason.REQUEST_INVALID, Sentence.verbatim("Not so."))])
def test_there_is_no_key_whose_spend_limits_could_not_be_set(console: ConsoleHarness, error: LegatoError) -> None:
    console.backends.fail = {LIMIT_KEY: error}
    session = console.auth.sign_in()
    answer = console.post("/keys", form(), session)
    assert answer.status == (503 if error.reason is Reason.UNAVAILABLE else 400)
    assert not KEY_PATTERN.search(answer.text)
    assert console.auth.list_keys() == []
    assert console.auth.events("key.created") == []
    # The same form again creates it.
    console.backends.fail = {}
    assert KEY_PATTERN.search(console.follow(console.post("/keys", form(), session), session).text)


def test_the_secret_of_a_key_that_an_older_auth_has_not_limited_is_not_shown(
    console: ConsoleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def to_issued(servicer: KeyAdminServicer, issued: IssuedKey) -> dict[str, Any]:
        return {"key": servicer._to_key(issued.shown), "api_key": issued.secret}

    monkeypatch.setattr(KeyAdminServicer, "_to_issued", to_issued)
    session = console.auth.sign_in()
    answer = console.post("/keys", form(), session)
    assert (answer.status, "Nobody has the new key, but it is in the list" in answer.text) == (503, True)
    assert not KEY_PATTERN.search(answer.text)
    assert console.backends.auth.kept_results() == []
    # One that has no limits is as good as any.
    made = console.post("/keys", form(day="", total="", form_id="f2"), session)
    assert KEY_PATTERN.search(console.follow(made, session).text)


def test_no_key_is_created_while_its_spend_limits_cannot_be_set(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    console.backends.fail = {"SpendLimitService.ListSpendLimits": not_answering()}
    assert "so there is no new key" in console.post("/keys", form(), session).text
    console.backends.fail = {}
    console.metering.limit(WHOLE_ACCOUNT, SpendLimits(day_nanos=2 * DOLLAR))
    above = console.post("/keys", form(), session)
    assert (above.status, "Not more than the account may spend: $2.00 a day." in above.text) == (400, True)
    assert console.auth.list_keys() == []


def test_without_spend_limits_a_key_is_created_while_metering_is_away(console: ConsoleHarness) -> None:
    console.backends.fail = {"SpendLimitService.ListSpendLimits": not_answering(), LIMIT_KEY: not_answering()}
    session = console.auth.sign_in()
    made = console.post("/keys", form(day="", total=""), session)
    assert KEY_PATTERN.search(console.follow(made, session).text)


def test_a_form_that_is_sent_twice_at_once_creates_one_key_with_its_limits(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: console.post("/keys", form(), session), range(4)))
    [key] = console.auth.list_keys()
    assert {answer.status for answer in answers} == {303}
    assert sorted(answer.headers["location"] for answer in answers) == [f"/keys/{key.key_id}"] * 3 + [
        f"/keys/{key.key_id}/made"
    ]
    assert console.metering.limits(key.key_id) == SpendLimits(day_nanos=2_500_000_000, total_nanos=40 * DOLLAR)


def test_members_limit_the_keys_that_they_create(console: ConsoleHarness) -> None:
    console.auth.set_role(AccountRole.MEMBER)
    session = console.auth.sign_in()
    assert KEY_PATTERN.search(console.follow(console.post("/keys", form(), session), session).text)
    [key] = console.auth.list_keys()
    limits = console.metering.limits(key.key_id)
    # To change them afterwards is for owners.
    path = f"/keys/{key.key_id}/spend-limits"
    assert console.post(path, {"day": "9", "month": "", "total": ""}, session).status == 403
    assert console.metering.limits(key.key_id) == limits


def test_a_key_never_expires_unless_the_form_says_so_and_the_form_advises_it(console: ConsoleHarness) -> None:
    page = console.get("/keys/new", console.auth.sign_in()).text
    assert re.search(r'value="never" checked', page)
    assert "We advise 90 days" in page


def test_empty_limits_are_told_as_numbers(console: ConsoleHarness) -> None:
    page = console.get("/keys/new", console.auth.sign_in()).text
    for words in ("3,000 (the service", "200,000 (the account", "unlimited (the service"):
        assert f"Empty: {words}&#39;s" in page


def test_a_refusal_of_a_service_stands_at_the_field_that_it_is_about(console: ConsoleHarness) -> None:
    answer = console.post("/keys", form(tokens_per_minute="200,001"), console.auth.sign_in())
    assert answer.status == 400
    assert '#field-tokens_per_minute">Tokens per minute: A key&#39;s limit cannot be above the account' in answer.text
    assert "<details open><summary>Rate limits" in answer.text


def test_the_summary_lists_what_is_wrong_as_the_page_has_it_and_names_the_limits(console: ConsoleHarness) -> None:
    wrong = form(requests_per_minute="many", day="five", name="x" * 101)
    answer = console.post("/keys", wrong, console.auth.sign_in())
    assert re.findall(r'<li><a href="#field-\w+">([^<]+)</a>', answer.text) == [
        "At most 100 characters.",
        "Dollars a day: An amount in dollars such as 5.00, or nothing.",
        "Requests per minute: A whole number, or nothing.",
    ]


def test_a_key_is_created_with_what_the_form_says(console: ConsoleHarness) -> None:
    fields = {"name": "Report", "scope": "inference", "allowed": "mezzo", "expires": "30", "form_id": "f1"}
    fields["requests_per_minute"] = "60"
    session = console.auth.sign_in()
    answer = console.follow(console.post("/keys", fields, session), session)
    assert len(KEY_PATTERN.findall(answer.text)) == 6
    [key] = console.auth.list_keys()
    assert (key.name, key.scopes, key.expires_at_us) == ("Report", (Scope.INFERENCE,), NOW_US + 30 * DAY_US)
    assert key.limits == KeyLimits(requests_per_minute=60)
    assert key.allowed_classes == ClassAllowance(("mezzo",))
    assert f"sk-legato-{key.key_id.removeprefix('key_')}" in only_match(KEY_PATTERN, answer.text)


def test_the_page_of_a_new_key_loaded_again_shows_it_no_more(console: ConsoleHarness) -> None:
    fields = {"name": "Report", "scope": "inference", "allowed": "mezzo", "expires": "never", "form_id": "f1"}
    session = console.auth.sign_in()
    made = console.post("/keys", fields, session)
    first = console.follow(made, session, {"Accept-Encoding": "gzip"})
    secret = only_match(KEY_PATTERN, first.text)
    [key] = console.auth.list_keys()
    assert "content-encoding" not in first.headers
    assert first.headers["cache-control"] == "no-store"
    # The page again with the cookie, which the first view removed, and the form again.
    for again in (console.follow(made, session), console.post("/keys", fields, session)):
        assert (again.status, again.headers["location"]) == (303, f"/keys/{key.key_id}")
        assert secret not in again.text
        assert any(cookie.startswith("legato-notice=shown-before.0") for cookie in again.cookies)
    assert console.auth.list_keys() == [key]


def test_a_form_with_mistakes_says_which_and_creates_nothing(console: ConsoleHarness) -> None:
    fields = {"name": "x" * 101, "expires": "7", "tokens_per_minute": "many"}
    answer = console.post("/keys", fields, console.auth.sign_in())
    assert answer.status == 400
    for problem in ("At most 100", "Choose what the key may do", "Choose when", "A whole number"):
        assert problem in answer.text
    assert console.auth.list_keys() == []


def test_rotation_shows_old_and_new_side_by_side(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    sent = console.post("/keys/key_0000000000000003/rotate", {"expires": "90", "form_id": "f"}, session)
    made = console.follow(sent, session)
    assert KEY_PATTERN.search(made.text)
    new = console.auth.list_keys()[-1]
    assert (new.replaces_key_id, new.name) == ("key_0000000000000003", "Old laptop (2)")
    page = console.get("/keys/key_0000000000000003", session)
    assert "Rotation under way" in page.text
    assert "has not been used for 119 days" in page.text
    assert console.auth.list_keys()[-1].key_id in page.text


def test_a_rotated_key_without_a_name_goes_by_the_id_of_the_old_one(console: ConsoleHarness) -> None:
    key = console.auth.add_key("")
    session = console.auth.sign_in()
    console.post(f"/keys/{key.key_id}/rotate", {"expires": "never", "form_id": "f"}, session)
    assert console.auth.list_keys()[-1].name == f"{key.key_id} (2)"
