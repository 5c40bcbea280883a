"""Every page: what it shows with data, without any, and while a service does not answer."""

import html
import re
from dataclasses import replace
from urllib.parse import quote

import pytest
from starlette.requests import Request

from console.routes import PAGES, PageRoute
from console.web.forms import Form
from console.web.visit import Visit
from protos.auth.v1 import auth_pb2
from protos.type.v1 import access_token_pb2
from services.chassis.errors import LegatoError, Reason
from tests.console.fakes.keys import ACCOUNT_ID, SECRET
from tests.console.fakes.services import CODE, INVITATION, not_answering
from tests.console.fakes.statements import request_id
from tests.console.harness import API_URL, COOKIE, ConsoleHarness

SHOWN = ["/", "/keys", "/keys/new", "/keys/identify", "/security", "/security/passkeys/new", "/security/audit-log"]
SHOWN += ["/settings", "/settings/audit-log", "/keys/key_0000000000000001", "/playground"]
SHOWN += ["/usage", "/usage?by=member&keys=mine", "/requests", "/credit", "/credit/entries"]
SHOWN += [f"/requests/{request_id(3)}"]
SHOWN += ["/memory", "/memory/note_0000000000000001", "/documents", "/preview"]


@pytest.mark.parametrize("path", SHOWN)
def test_a_page_is_shown_with_at_most_four_calls(console: ConsoleHarness, path: str) -> None:
    console.fakes.fill()
    console.fakes.fill_grounding()
    answer = console.get(path, console.fakes.sign_in())
    assert answer.status == 200
    assert len(re.findall("<h1", answer.text)) == 1
    assert len(console.fakes.calls) <= 4


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.method} {page.path}")
def test_a_page_that_needs_sign_in_leads_to_it(console: ConsoleHarness, page: PageRoute) -> None:

    path = re.sub(r"\{\w+\}", "key_0000000000000001", page.path)
    answer = console.get(path) if page.method == "GET" else console.post(path)
    if page.needs_sign_in:
        assert answer.status == (401 if page.is_json else 303)
        assert console.fakes.calls == []


def test_without_use_the_overview_guides_to_a_first_request(console: ConsoleHarness) -> None:
    answer = console.get("/", console.fakes.sign_in())
    assert "Create a key and insert it" in answer.text
    assert f"{API_URL}/chat/completions" in answer.text
    assert "Last 30 days" not in answer.text


def test_the_guide_creates_a_key_and_puts_it_into_every_example(console: ConsoleHarness) -> None:
    session = console.fakes.sign_in()
    answer = console.follow(console.post("/first-key", {"form_id": "f1"}, session), session)
    assert answer.text.count(SECRET) == 4
    assert "YOUR_KEY" not in answer.text


def test_the_overview_adds_up_what_metering_says(console: ConsoleHarness) -> None:
    console.fakes.fill()
    answer = console.get("/", console.fakes.sign_in())
    total = sum(row.cost_nanos for row in console.fakes.rows)
    exact = f"{total // 10**9}.{total % 10**9:09d}".rstrip("0")
    assert f'value="{exact}"' in answer.text


def test_while_metering_does_not_answer_the_other_pages_work(console: ConsoleHarness) -> None:
    console.fakes.fill()
    console.fakes.fail = {name: not_answering() for name in ("MeteringService.ListUsage", "MeteringService.GetBalance")}
    session = console.fakes.sign_in()
    assert "Metering is not answering" in console.get("/", session).text
    keys = console.get("/keys", session)
    assert keys.status == 200
    assert "costs are left out" in keys.text
    assert console.post("/keys/key_0000000000000001/revoke", session=session).status == 303


def test_while_the_router_does_not_answer_settings_say_so(console: ConsoleHarness) -> None:
    console.fakes.fail = {"RouterService.ListModels": not_answering()}
    assert "The router is not answering" in console.get("/settings", console.fakes.sign_in()).text


def test_while_auth_does_not_answer_the_page_says_so(console: ConsoleHarness) -> None:
    console.fakes.fail = {"SignInService.ResolveSession": not_answering()}
    answer = console.get("/keys", console.fakes.sign_in())
    assert answer.status == 503
    assert "not answering" in answer.text


def test_a_suspended_account_is_told_why_no_key_works(console: ConsoleHarness) -> None:
    console.fakes.is_suspended = True
    assert "This account is suspended" in console.get("/", console.fakes.sign_in()).text


def test_a_user_without_an_account_is_told_whom_to_ask(console: ConsoleHarness) -> None:
    console.fakes.has_account = False
    assert "You belong to no account yet" in console.get("/", console.fakes.sign_in()).text


def test_an_operator_without_an_account_is_led_to_the_operators_pages(console: ConsoleHarness) -> None:
    console.fakes.has_account, console.fakes.is_operator = False, True
    answer = console.get("/", console.fakes.sign_in())
    assert (answer.status, answer.headers["location"]) == (303, "/operator")


def test_a_viewer_sees_settings_without_forms(console: ConsoleHarness) -> None:
    console.fakes.role = access_token_pb2.ACCOUNT_ROLE_VIEWER
    answer = console.get("/settings", console.fakes.sign_in())
    assert "/settings/class" not in answer.text
    assert "/settings/members/invite" not in answer.text


def test_a_key_is_created_with_what_the_form_says(console: ConsoleHarness) -> None:
    fields = {"name": "Report", "scope": "inference", "allowed": "mezzo", "expires": "30", "form_id": "f1"}
    fields["requests_per_minute"] = "60"
    session = console.fakes.sign_in()
    answer = console.follow(console.post("/keys", fields, session), session)
    assert answer.text.count(SECRET) == 4
    [request] = [request for request in console.fakes.requests if hasattr(request, "expires_after_days")]
    assert (request.account_id, request.name, request.expires_after_days) == (ACCOUNT_ID, "Report", 30)
    assert list(request.scopes) == [auth_pb2.SCOPE_INFERENCE]
    assert request.requests_per_minute == 60
    assert not request.HasField("tokens_per_minute")


def test_the_page_of_a_new_key_loaded_again_shows_it_no_more(console: ConsoleHarness) -> None:
    fields = {"name": "Report", "scope": "inference", "allowed": "mezzo", "expires": "never", "form_id": "f1"}
    session = console.fakes.sign_in()
    made = console.post("/keys", fields, session)
    first = console.follow(made, session, {"Accept-Encoding": "gzip"})
    assert SECRET in first.text
    assert "content-encoding" not in first.headers
    assert first.headers["cache-control"] == "no-store"
    # The page again with the cookie, which the first view removed, and the form again.
    for again in (console.follow(made, session), console.post("/keys", fields, session)):
        assert (again.status, again.headers["location"]) == (303, "/keys/key_0000000000000001")
        assert SECRET not in again.text
        assert any(cookie.startswith("legato-notice=shown-before.0") for cookie in again.cookies)
    assert len(console.fakes.keys) == 1


def test_a_form_with_mistakes_says_which_and_creates_nothing(console: ConsoleHarness) -> None:
    fields = {"name": "x" * 101, "expires": "7", "tokens_per_minute": "many"}
    answer = console.post("/keys", fields, console.fakes.sign_in())
    assert answer.status == 400
    for problem in ("At most 100", "Choose what the key may do", "Choose when", "A whole number"):
        assert problem in answer.text
    assert console.fakes.keys == []


def test_revoking_says_how_long_it_took_until_every_edge_refuses(console: ConsoleHarness) -> None:
    console.fakes.fill()
    session = console.fakes.sign_in()
    answer = console.post("/keys/key_0000000000000001/revoke", session=session)
    assert (answer.status, answer.headers["location"]) == (303, "/keys/key_0000000000000001")
    [notice] = [cookie for cookie in answer.cookies if cookie.startswith("legato-notice=")]
    shown = console.get("/keys/key_0000000000000001", headers={"Cookie": f"{COOKIE}={session}; {notice.split(';')[0]}"})
    assert re.search(r"Every edge refuses the key since \d+\.\d s after you clicked", shown.text)
    assert any(cookie.startswith('legato-notice=""; ') for cookie in shown.cookies)


def test_a_notice_is_never_text_from_a_cookie(console: ConsoleHarness) -> None:
    session = console.fakes.sign_in()
    for forged in ("<b>hi</b>.1", "key-revoked.x", "key-revoked", "unknown.3"):
        answer = console.get("/", headers={"Cookie": f"{COOKIE}={session}; legato-notice={forged}"})
        assert 'role="status"' not in answer.text


def test_rotation_shows_old_and_new_side_by_side(console: ConsoleHarness) -> None:
    console.fakes.fill()
    session = console.fakes.sign_in()
    sent = console.post("/keys/key_0000000000000003/rotate", {"expires": "90", "form_id": "f"}, session)
    made = console.follow(sent, session)
    assert SECRET in made.text
    page = console.get("/keys/key_0000000000000003", session)
    assert "Rotation under way" in page.text
    assert "has not been used for 119 days" in page.text
    assert "key_0000000000000006" in page.text


def test_limits_name_who_set_them(console: ConsoleHarness) -> None:
    console.fakes.fill()
    page = console.get("/keys/key_0000000000000001", console.fakes.sign_in())
    for source in ("Set on this key", "The account&#39;s limit", "The service&#39;s default"):
        assert source in page.text


def test_a_leaked_key_of_another_account_is_not_identified(console: ConsoleHarness) -> None:
    session = console.fakes.sign_in()
    assert console.post("/keys/identify", {"key_id": "key_ABCDEFGHIJKLMNOP"}, session).status == 404
    assert console.post("/keys/identify", {"key_id": SECRET}, session).status == 400
    console.fakes.fill()
    found = console.post("/keys/identify", {"key_id": "key_0000000000000002"}, session)
    assert found.headers["location"] == "/keys/key_0000000000000002"


def test_a_link_signs_in_once_and_leads_to_an_own_path_alone(console: ConsoleHarness) -> None:
    answer = console.post("/sign-in", {"code": CODE, "next": "/keys"})
    assert (answer.status, answer.headers["location"]) == (303, "/keys")
    [cookie] = answer.cookies
    assert cookie.startswith(f"{COOKIE}=session-token-")
    for part in ("HttpOnly", "Path=/", "SameSite=lax", "Secure"):
        assert part in cookie
    again = console.post("/sign-in", {"code": CODE})
    assert again.status == 401
    assert again.cookies == ()
    for elsewhere in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"):
        console.fakes.used_codes.clear()
        assert console.post("/sign-in", {"code": CODE, "next": elsewhere}).headers["location"] == "/"


def test_signing_in_leads_back_to_the_page_with_its_query(console: ConsoleHarness) -> None:
    for path in ("/usage?by=key&period=90", "/keys?q=a%26b&show=active", "/keys?q=%2F%2Fevil.example"):
        asked = console.get(path)
        assert asked.headers["location"] == f"/sign-in?next={quote(path, safe='')}"
        shown = console.get(asked.headers["location"]).text
        [kept] = set(re.findall(r'name="next" value="([^"]+)"', shown))
        assert html.unescape(kept) == path
        console.fakes.used_codes.clear()
        assert console.post("/sign-in", {"code": CODE, "next": path}).headers["location"] == path
    # A query that makes an address too long for a header is left out.
    assert console.get(f"/keys?q={'x' * 4000}").headers["location"] == "/sign-in?next=%2Fkeys"


def test_too_many_sign_ins_say_how_long_to_wait(console: ConsoleHarness) -> None:
    refusal = LegatoError(Reason.TOO_MANY_SIGN_INS, "Too many attempts.", retry_after_s=41)
    console.fakes.fail = {"SignInService.SignInWithLink": refusal}
    answer = console.post("/sign-in", {"code": "AAAA-BBBB"})
    assert (answer.status, answer.headers["retry-after"]) == (429, "41")
    assert "Try again in 41 seconds" in answer.text


def test_showing_an_invitation_consumes_nothing_and_accepting_signs_in(console: ConsoleHarness) -> None:
    shown = console.post("/invitation", {"code": INVITATION})
    assert "Join Analytical Engines" in shown.text
    assert "Charles Babbage" in shown.text
    assert console.fakes.calls == ["SignInService.GetInvitation", "SignInMethodService.GetSignInMethods"]
    accepted = console.post("/invitation/accept", {"code": INVITATION, "name": "Grace"})
    assert accepted.headers["location"] == "/security/passkeys/new"
    assert any(cookie.startswith(COOKIE) for cookie in accepted.cookies)
    wrong = console.post("/invitation", {"code": "AAAA"})
    assert wrong.status == 401
    assert "Analytical" not in wrong.text


def test_what_grants_access_asks_again_who_it_is_and_then_goes_on(console: ConsoleHarness) -> None:
    console.fakes.is_fresh = False
    session = console.fakes.sign_in()
    fields = {"name": "Report", "scope": "inference", "allowed": "mezzo", "expires": "30", "form_id": "f1"}
    asked = console.post("/keys", fields, session)
    assert asked.status == 403
    assert "Confirm that it is you" in asked.text
    assert console.fakes.keys == []
    [pending] = set(re.findall(r'name="pending" value="([^"]+)"', asked.text))
    pending = pending.replace("&#34;", '"')
    wrong = console.post("/confirm", {"pending": pending, "kind": "recovery", "code": "no"}, session)
    assert wrong.status == 401
    done = console.post("/confirm", {"pending": pending, "kind": "recovery", "code": "recovery-1"}, session)
    assert SECRET in console.follow(done, session).text
    assert console.fakes.keys[0].key.name == "Report"
    [cookie, _shown] = done.cookies
    assert session not in cookie
    assert console.get("/keys", session).status == 303


def test_a_page_that_asks_who_it_is_leads_on_with_its_query(console: ConsoleHarness) -> None:
    console.fakes.offer_everything()
    console.fakes.is_fresh = False
    session = console.fakes.sign_in()
    path = "/security/passkeys/new?from=menu&again=1"
    asked = console.get(path, session)
    assert f"/sign-in/sso?again=1&amp;next={quote(path, safe='/')}" in asked.text
    [pending] = set(re.findall(r'name="pending" value="([^"]+)"', asked.text))
    fields = {"pending": html.unescape(pending), "kind": "recovery", "code": "recovery-1"}
    assert console.post("/confirm", fields, session).headers["location"] == path


def test_a_confirmed_request_can_only_be_one_of_the_pages(console: ConsoleHarness) -> None:
    for path in ("/sign-out", "/nowhere", "https://evil.example/"):
        pending = f'{{"method": "POST", "path": "{path}", "fields": []}}'
        fields = {"pending": pending, "kind": "recovery", "code": "recovery-1"}
        assert console.post("/confirm", fields, console.fakes.sign_in()).status == 400


def test_what_removes_access_never_asks_again(console: ConsoleHarness) -> None:
    console.fakes.fill()
    console.fakes.is_fresh = False
    session = console.fakes.sign_in()
    for path, fields in {
        "/keys/key_0000000000000001/revoke": {},
        "/security/sessions/end": {},
        "/security/passkeys/remove": {"passkey_id": "pk_1"},
        "/settings/members/remove": {"user_id": "user_2"},
    }.items():
        assert console.post(path, fields, session).status == 303


def test_the_last_way_to_sign_in_cannot_be_removed(console: ConsoleHarness) -> None:
    console.fakes.fill()
    console.fakes.passkeys.pop()
    answer = console.post("/security/passkeys/remove", {"passkey_id": "pk_1"}, console.fakes.sign_in())
    assert answer.status == 400
    assert "cannot be removed" in answer.text


def test_the_operators_own_console_shares_no_cookie_with_the_console_for_owners(console: ConsoleHarness) -> None:
    headers = [(b"cookie", f"{COOKIE}=owner; legato-account=acct_1".encode()), (b"user-agent", b"Chrome/1")]
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": headers})
    owners = Visit(console.console, request, Form([]))
    operators = Visit(replace(console.console, public_origin="http://localhost:1"), request, Form([]))
    assert (owners.session_token, operators.session_token) == ("owner", "")
    for visit in (owners, operators):
        visit.sign_in("token")
        visit.choose_account("acct_2")
        visit.redirect("/", "key-renamed")
    assert set(owners.cookies).isdisjoint(operators.cookies)
    assert len(owners.cookies) == len(operators.cookies) == 3
