"""The operators' pages: who sees them, what they show, and what each form does."""

import dataclasses
import re

import pytest

from console.app import ConsoleApp
from console.routes import PAGES, PageRoute
from console.web.metrics import PageMetrics
from protos.auth.v1 import auth_pb2
from protos.auth.v1 import users_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.metrics import new_registry
from tests.console.fakes.operator_services import DOLLAR, LINK_CODE
from tests.console.fakes.services import not_answering
from tests.console.harness import ConsoleHarness

FOR_OPERATORS = [page for page in PAGES if page.needs_operator]
ACCOUNT = "/operator/accounts/acct_0000000000000001"
CREDIT = {"kind": "grant", "amount": "5.00", "amount_again": "5.00", "reason": "", "operation_id": "0af3"}


def path_of(page: PageRoute) -> str:
    values = {"account_id": "acct_0000000000000001", "key_id": "key_0000000000000001", "user_id": "user_2"}
    return page.path.format(**values)


def test_every_page_below_operator_is_for_operators_alone() -> None:
    assert {page.path for page in PAGES if page.path.startswith("/operator")} == {page.path for page in FOR_OPERATORS}


@pytest.mark.parametrize("page", FOR_OPERATORS, ids=lambda page: f"{page.method} {page.path}")
def test_there_is_no_such_page_for_anybody_else(console: ConsoleHarness, page: PageRoute) -> None:
    session = console.fakes.sign_in()
    path = path_of(page)
    answer = console.get(path, session) if page.method == "GET" else console.post(path, session=session)
    assert answer.status == 404
    assert console.fakes.calls == ["SignInService.ResolveSession"]


@pytest.mark.parametrize("page", FOR_OPERATORS, ids=lambda page: f"{page.method} {page.path}")
def test_a_proof_of_who_it_is_opens_no_operators_page_to_anybody_else(console: ConsoleHarness, page: PageRoute) -> None:
    pending = f'{{"method": "{page.method}", "path": "{path_of(page)}", "fields": []}}'
    fields = {"pending": pending, "kind": "recovery", "code": "recovery-1"}
    answer = console.post("/confirm", fields, console.fakes.sign_in())
    assert answer.status == 404
    assert not [call for call in console.fakes.calls if "Admin" in call]


def test_the_public_console_has_no_such_pages_even_for_operators(console: ConsoleHarness) -> None:
    owners = dataclasses.replace(console.console, serves_operators=False)
    public = ConsoleApp(owners, PageMetrics(new_registry()), console.capacity)
    paths = {route.path for route in public._starlette.routes}  # type: ignore[attr-defined]
    assert "/keys" in paths
    assert not [path for path in paths if path.startswith("/operator")]


def test_only_operators_see_links_to_them(console: ConsoleHarness, session: str) -> None:
    assert 'href="/operator"' in console.get("/keys", session).text
    assert 'href="/operator/users"' in console.get("/operator", session).text
    console.fakes.is_operator = False
    assert "/operator" not in console.get("/keys", session).text


@pytest.mark.parametrize(
    "page",
    [page for page in FOR_OPERATORS if page.method == "GET" and not page.is_json and not page.shows_once],
    ids=lambda page: page.path,
)
def test_a_page_is_shown_with_at_most_four_calls_and_its_command(
    console: ConsoleHarness, session: str, page: PageRoute
) -> None:
    answer = console.get(path_of(page), session)
    assert answer.status == 200
    assert len(re.findall("<h1", answer.text)) == 1
    assert len(console.fakes.calls) <= 4
    assert "legato " in answer.text


def test_accounts_are_searched_and_show_their_credit(console: ConsoleHarness, session: str) -> None:
    answer = console.get("/operator/accounts?q=bernoulli", session)
    assert "Bernoulli &amp; Daughters" in answer.text
    assert "Analytical Engines</a>" not in answer.text
    assert "$84.18" in answer.text
    assert "No account fits" in console.get("/operator/accounts?q=nobody", session).text


def test_while_metering_does_not_answer_accounts_are_shown_without_balances(
    console: ConsoleHarness, session: str
) -> None:
    console.fakes.fail = {"CreditAdminService.ListBalances": not_answering()}
    for path in ("/operator/accounts", ACCOUNT):
        answer = console.get(path, session)
        assert answer.status == 200
        assert "Metering is not answering" in answer.text


def test_a_new_account_leads_to_its_page(console: ConsoleHarness, session: str) -> None:
    answer = console.post("/operator/accounts", {"name": "New Ideas"}, session)
    assert answer.headers["location"] == "/operator/accounts/acct_0000000000000005"
    assert console.post("/operator/accounts", {"name": ""}, session).status == 400


def test_a_form_that_is_sent_twice_books_once(console: ConsoleHarness, session: str) -> None:
    before = console.fakes.operator.balances["acct_0000000000000001"]
    for _ in range(2):
        assert console.post(f"{ACCOUNT}/credit", CREDIT, session).status == 303
    assert console.fakes.operator.balances["acct_0000000000000001"] == before + 5 * DOLLAR
    noted = console.fakes.operator.recorded[0]
    assert (noted.action, noted.object_id) == (pb.OPERATOR_ACTION_GRANT_CREDIT, "user_1-0af3")


def test_each_visit_has_a_booking_of_its_own(console: ConsoleHarness, session: str) -> None:
    ids = [re.findall(r'name="operation_id" value="(\w+)"', console.get(ACCOUNT, session).text) for _ in range(2)]
    assert len(ids[0]) == 1
    assert ids[0] != ids[1]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"amount_again": "50.00"}, "The two amounts differ"),
        # Whoever writes decimals with a comma does not grant a hundred times as much.
        ({"amount": "5,00", "amount_again": "5,00"}, "such as 5.00"),
        ({"amount": "-5", "amount_again": "-5"}, "A grant is more than zero"),
        ({"kind": "adjustment"}, "needs a reason"),
        ({"kind": "other"}, "Choose a grant or an adjustment"),
        ({"amount": "1000001", "amount_again": "1000001"}, "At most a million dollars"),
    ],
)
def test_a_booking_with_a_mistake_is_not_made(
    console: ConsoleHarness, session: str, changed: dict[str, str], problem: str
) -> None:
    answer = console.post(f"{ACCOUNT}/credit", CREDIT | changed, session)
    assert answer.status == 400
    assert problem in answer.text
    assert console.fakes.operator.bookings == {}
    assert console.fakes.operator.recorded == []


def test_a_booking_whose_outcome_is_unknown_is_sent_again_under_the_same_id(
    console: ConsoleHarness, session: str
) -> None:
    console.fakes.fail = {"CreditAdminService.GrantCredits": not_answering()}
    answer = console.post(f"{ACCOUNT}/credit", CREDIT, session)
    assert answer.status == 503
    assert "It is not known whether this was booked" in answer.text
    assert 'name="operation_id" value="0af3"' in answer.text
    assert 'name="amount" type="text" value="5.00"' in answer.text


def test_a_booking_asks_again_who_it_is_and_is_then_made_and_noted_once(console: ConsoleHarness, session: str) -> None:
    console.fakes.is_fresh = False
    asked = console.post(f"{ACCOUNT}/credit", CREDIT, session)
    assert asked.status == 403
    assert console.fakes.operator.recorded == []
    match = re.search(r'name="pending" value="([^"]*)"', asked.text)
    assert match
    pending = match[1].replace("&#34;", '"').replace("&quot;", '"')
    fields = {"pending": pending, "kind": "recovery", "code": "recovery-1"}
    assert console.post("/confirm", fields, session).status == 303
    assert console.fakes.operator.bookings == {"0af3": 5 * DOLLAR}
    assert len(console.fakes.operator.recorded) == 1


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/operator/accounts", {"name": "Acme"}),
        (f"{ACCOUNT}/limits", {"requests_per_minute": "5"}),
        ("/operator/accounts/acct_0000000000000004/resume", {}),
        ("/operator/users", {"name": "Grace"}),
        ("/operator/users/user_2/sign-in-link", {}),
        ("/operator/users/user_2/operator", {"is_operator": "yes"}),
        ("/operator/users/user_3/enable", {}),
        ("/operator/routes/reload", {}),
    ],
)
def test_what_grants_asks_again_who_it_is(
    console: ConsoleHarness, session: str, path: str, fields: dict[str, str]
) -> None:
    console.fakes.is_fresh = False
    answer = console.post(path, fields, session)
    assert answer.status == 403
    assert "Confirm that it is you" in answer.text


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (f"{ACCOUNT}/suspend", {}),
        ("/operator/keys/key_0000000000000001/revoke", {}),
        ("/operator/users/user_2/disable", {}),
        ("/operator/users/user_2/operator", {"is_operator": "no"}),
    ],
)
def test_what_removes_access_never_asks_again(
    console: ConsoleHarness, session: str, path: str, fields: dict[str, str]
) -> None:
    console.fakes.is_fresh = False
    assert console.post(path, fields, session).status == 303


def test_a_suspended_account_is_resumed(console: ConsoleHarness, session: str) -> None:
    path = "/operator/accounts/acct_0000000000000004"
    assert f"{path}/resume" in console.get(path, session).text
    assert console.post(f"{path}/resume", session=session).status == 303
    assert not console.fakes.operator.accounts["acct_0000000000000004"].HasField("suspend_time")


def test_a_key_leads_to_its_owner_and_is_revoked(console: ConsoleHarness, session: str) -> None:
    found = console.post("/operator/keys", {"key_id": "key_0000000000000001"}, session)
    assert found.headers["location"] == "/operator/keys/key_0000000000000001"
    page = console.get(found.headers["location"], session)
    assert ACCOUNT in page.text
    assert "Charles Babbage" in page.text
    assert console.post("/operator/keys/key_0000000000000001/revoke", session=session).status == 303
    assert console.fakes.operator.keys["key_0000000000000001"].state == auth_pb2.KEY_STATE_REVOKED


def test_a_whole_key_is_never_sent_on(console: ConsoleHarness, session: str) -> None:
    whole = "sk-legato-0123456789abcdefZYXWVUTSRQPONMLKJIHGFEDCBA9876543checks"
    answer = console.post("/operator/keys", {"key_id": whole}, session)
    assert answer.status == 400
    assert "KeyAdminService.GetKey" not in console.fakes.calls
    assert whole not in answer.text


def test_a_key_that_never_was_ours_is_told_so(console: ConsoleHarness, session: str) -> None:
    answer = console.post("/operator/keys", {"key_id": "key_zzzzzzzzzzzzzzzz"}, session)
    assert answer.status == 404
    assert "never one of this service" in answer.text


def test_a_new_users_link_is_shown_once_and_never_compressed(console: ConsoleHarness, session: str) -> None:
    made = console.post("/operator/users", {"name": "Mary"}, session)
    answer = console.follow(made, session, {"Accept-Encoding": "gzip"})
    assert f"/sign-in#{LINK_CODE}" in answer.text
    assert "content-encoding" not in answer.headers
    assert LINK_CODE not in console.get("/operator/users", session).text
    assert LINK_CODE not in console.log_stream.getvalue()


def test_a_link_for_an_owner_leads_to_the_console_for_owners(console: ConsoleHarness, session: str) -> None:
    object.__setattr__(console.console, "public_origin", "https://console.example.ca")
    try:
        made = console.follow(console.post("/operator/users/user_2/sign-in-link", session=session), session)
        assert f"https://console.example.ca/sign-in#{LINK_CODE}" in made.text
        own = console.follow(console.post("/operator/users/user_1/sign-in-link", session=session), session)
        assert f"{console.origin}/sign-in#{LINK_CODE}" in own.text
    finally:
        object.__setattr__(console.console, "public_origin", "")


def test_a_user_whose_address_is_taken_is_not_added(console: ConsoleHarness, session: str) -> None:
    answer = console.post("/operator/users", {"name": "Ada", "email": "ada@example.ca"}, session)
    assert answer.status == 400
    assert "already" in answer.text
    assert 'value="ada@example.ca"' in answer.text


def test_the_last_operator_is_told_to_stay(console: ConsoleHarness, session: str) -> None:
    answer = console.post("/operator/users/user_1/operator", {"is_operator": "no"}, session)
    assert answer.status == 400
    assert "The last operator stays" in answer.text


def test_an_unknown_user_is_not_found(console: ConsoleHarness, session: str) -> None:
    assert console.get("/operator/users/user_nobody", session).status == 404


def test_routes_show_each_model_and_a_reload_says_what_is_wrong(console: ConsoleHarness, session: str) -> None:
    text = console.get("/operator/routes", session).text
    assert "41 of 48" in text
    assert "Failing" in text
    assert "Reloaded" in console.post("/operator/routes/reload", session=session).text
    mistake = LegatoError(Reason.REQUEST_INVALID, "routes.toml: line 7: no such provider")
    console.fakes.fail = {"RouteAdminService.ReloadRoutes": mistake}
    answer = console.post("/operator/routes/reload", session=session)
    assert answer.status == 400
    assert "line 7: no such provider" in answer.text
    assert [each.action for each in console.fakes.operator.recorded] == [pb.OPERATOR_ACTION_RELOAD_ROUTES] * 2


def test_routes_show_what_a_reload_would_change_before_it_does(console: ConsoleHarness, session: str) -> None:
    assert "a reload would change nothing" in console.get("/operator/routes", session).text
    console.fakes.operator.route_changes = ["- forte: 1. maple-large of maple", "+ forte: 1. <maple> of maple"]
    text = console.get("/operator/routes", session).text
    assert '<li class="goes">- forte: 1. maple-large of maple</li>' in text
    assert '<li class="comes">+ forte: 1. &lt;maple&gt; of maple</li>' in text
    console.fakes.operator.file_mistakes = ["routes.toml: classes.forte: is missing"]
    text = console.get("/operator/routes", session).text
    assert "The file on disk has mistakes" in text
    assert "classes.forte: is missing" in text


def test_a_router_that_does_not_answer_is_told_so(console: ConsoleHarness, session: str) -> None:
    console.fakes.fail = {"RouteAdminService.ListTargets": not_answering()}
    answer = console.get("/operator/routes", session)
    assert answer.status == 200
    assert "What this router does is not known" in answer.text


def test_the_ledger_is_audited_on_demand(console: ConsoleHarness, session: str) -> None:
    assert "Consistent" in console.get("/operator/ledger", session).text
    assert "The ledger is consistent" in console.post("/operator/ledger/audit", session=session).text
    console.fakes.operator.violations = ["account acct_a: balance is +5 nanos off the sum of its ledger"]
    answer = console.post("/operator/ledger/audit", session=session)
    assert "One violation" in answer.text
    assert "balance is +5 nanos off" in answer.text
    console.fakes.fail = {"CreditAdminService.Audit": not_answering()}
    assert "takes longer than this page waits" in console.post("/operator/ledger/audit", session=session).text


def test_dead_letters_of_all_accounts_are_shown_without_what_they_say(console: ConsoleHarness, session: str) -> None:
    assert "Everything was delivered" in console.get("/operator/dead-letters", session).text
    console.fakes.fill_notices()
    console.fakes.fill_dead_letters()
    text = console.get("/operator/dead-letters", session).text
    for words in ("hooks.example.ca", "HTTP 503", "12", "Mail to owners", "/operator/accounts/acct_0000000000000001"):
        assert words in text
    assert "spend limit" not in text


def test_the_audit_log_is_filtered_and_its_chain_checked(console: ConsoleHarness, session: str) -> None:
    text = console.get("/operator/audit-log?action=key&user=user_1", session).text
    assert "Key revoked" in text
    assert "Account suspended" not in text
    assert "The chain is whole" in console.post("/operator/audit-log/verify", session=session).text
    console.fakes.operator.broken_events = [909]
    answer = console.post("/operator/audit-log/verify", session=session).text
    assert "The chain is broken" in answer
    assert "909" in answer


def test_an_operator_sets_what_an_account_may_use_and_spend(console: ConsoleHarness, session: str) -> None:
    assert console.post(f"{ACCOUNT}/classes", {"allowed": ["mezzo"]}, session).status == 303
    assert list(console.fakes.requests[-1].allowed_classes.class_ids) == ["mezzo"]
    assert console.post(f"{ACCOUNT}/classes", {"allowed": []}, session).status == 400
    answer = console.post(f"{ACCOUNT}/spend-limits", {"day": "5", "month": "", "total": ""}, session)
    assert answer.headers["location"] == f"{ACCOUNT}/spend-limits"
    assert console.fakes.spends[""].limits.day_nanos == 5 * DOLLAR
    noted = console.fakes.operator.recorded[0]
    assert (noted.action, noted.account_id) == (pb.OPERATOR_ACTION_SET_SPEND_LIMITS, ACCOUNT.rpartition("/")[2])
    assert "0 % spent" in console.get(f"{ACCOUNT}/spend-limits", session).text
    assert console.post(f"{ACCOUNT}/spend-limits", {"day": "x", "month": "", "total": ""}, session).status == 400
