"""Pages of passwords, authenticator apps and single sign-on, over HTTP with fake services behind them."""

import re

from tests.console.fakes.credentials import ISSUER_URL, PASSWORD, TOTP_SECRET, sign_in_failed
from tests.console.fakes.services import CODE, INVITATION
from tests.console.harness import COOKIE, ConsoleHarness

SSO_COOKIE = f"{COOKIE}-sso"


def test_the_sign_in_page_offers_what_is_set_up_and_nothing_else(console: ConsoleHarness) -> None:
    plain = console.get("/sign-in").text
    for words in ("/sign-in/sso", "/sign-in/password", "/sign-in/mail"):
        assert words not in plain
    console.fakes.offer_everything()
    full = console.get("/sign-in").text
    for words in ("/sign-in/sso", "/sign-in/password", "/sign-in/mail", "Sign in with login.example.ca"):
        assert words in full


def test_the_sign_in_page_is_there_without_auth(console: ConsoleHarness) -> None:
    console.fakes.fail = {"SignInMethodService.GetSignInMethods": sign_in_failed()}
    assert console.get("/sign-in").status == 200


def test_a_password_signs_in_and_a_wrong_one_says_what_a_wrong_code_says(console: ConsoleHarness) -> None:
    console.fakes.offer_everything()
    fields = {"email": "ada@example.ca", "password": PASSWORD, "code": "123456", "next": "/keys"}
    signed_in = console.post("/sign-in/password", fields)
    assert (signed_in.status, signed_in.headers["location"]) == (303, "/keys")
    assert any(cookie.startswith(f"{COOKIE}=") for cookie in signed_in.cookies)
    wrong = console.post("/sign-in/password", {**fields, "password": "x"})
    other = console.post("/sign-in", {"code": CODE + "x"})
    assert (wrong.status, other.status) == (401, 401)
    alert = re.compile(r'<div class="notice bad".*?</div>', re.DOTALL)
    assert alert.findall(wrong.text) == alert.findall(other.text)
    assert PASSWORD not in wrong.text


def test_asking_for_mail_says_the_same_for_every_address(console: ConsoleHarness) -> None:
    console.fakes.offer_everything()
    answers = [console.post("/sign-in/mail", {"email": f"{name}@example.ca"}) for name in ("ada", "nobody")]
    assert answers[0].status == 303
    assert {(answer.status, answer.cookies) for answer in answers} == {(303, answers[0].cookies)}


def test_single_sign_on_starts_with_a_link_and_ends_in_the_browser_that_began(console: ConsoleHarness) -> None:
    console.fakes.offer_everything()
    started = console.get("/sign-in/sso?next=/keys")
    assert (started.status, started.headers["location"]) == (303, ISSUER_URL)
    [cookie] = [cookie for cookie in started.cookies if cookie.startswith(SSO_COOKIE)]
    assert "httponly" in cookie.lower()
    assert "samesite=lax" in cookie.lower()
    path = "/sign-in/sso/return?state=state-1&code=code-1"
    value = cookie.partition(";")[0]
    finished = console.get(path, headers={"Cookie": value})
    assert (finished.status, finished.headers["location"]) == (303, "/keys")
    assert any(cookie.startswith(f"{COOKIE}=") for cookie in finished.cookies)
    for headers in ({}, {"Cookie": f"{SSO_COOKIE}=another.%2F"}):
        assert console.get(path, headers=headers).status == 401


def test_the_way_back_leads_to_pages_of_the_console_only(console: ConsoleHarness) -> None:
    headers = {"Cookie": f"{SSO_COOKIE}=browser-1.https%3A%2F%2Fevil.example"}
    finished = console.get("/sign-in/sso/return?state=state-1&code=code-1", headers=headers)
    assert finished.headers["location"] == "/"


def test_an_invitation_can_be_accepted_with_single_sign_on_by_a_link(console: ConsoleHarness) -> None:
    console.fakes.offer_everything()
    assert "/invitation/sso" in console.post("/invitation", {"code": INVITATION}).text
    page = console.post("/invitation/sso", {"code": INVITATION})
    assert page.status == 200
    assert f'href="{ISSUER_URL}"' in page.text
    assert console.fakes.requests[-1].invitation_code == INVITATION


def test_linking_an_identity_needs_a_step_up_and_shows_a_link(console: ConsoleHarness) -> None:
    console.fakes.offer_everything()
    session = console.fakes.sign_in()
    assert f'href="{ISSUER_URL}"' in console.post("/security/identities", session=session).text
    console.fakes.is_fresh = False
    asked = console.post("/security/identities", session=session)
    assert asked.status == 403
    assert "/sign-in/sso?again=1" in asked.text


def test_a_password_is_set_and_never_shown(console: ConsoleHarness) -> None:
    console.fakes.offer_everything()
    console.fakes.has_password = False
    session = console.fakes.sign_in()
    fields = {"password": PASSWORD, "repeated_password": PASSWORD}
    done = console.post("/security/password", fields, session)
    assert (done.status, done.headers["location"]) == (303, "/security/authenticator")
    other = console.post("/security/password", {**fields, "repeated_password": "x"}, session)
    assert other.status == 400
    console.fakes.is_fresh = False
    asked = console.post("/security/password", fields, session)
    for page in (other, asked):
        assert PASSWORD not in page.text


def test_an_authenticator_app_is_set_up_with_a_picture_and_a_key(console: ConsoleHarness) -> None:
    console.fakes.offer_everything()
    session = console.fakes.sign_in()
    page = console.get("/security/authenticator", session)
    assert '<svg viewBox="0 0' in page.text
    assert " ".join(re.findall("....", TOTP_SECRET)) in page.text
    # It has a secret.
    assert (
        "content-encoding" not in console.get("/security/authenticator", session, {"Accept-Encoding": "gzip"}).headers
    )
    wrong = console.post("/security/authenticator", {"challenge": "totp_1", "code": "000000"}, session)
    assert wrong.status == 400
    assert "the picture is the same" in wrong.text
    late = console.post("/security/authenticator", {"challenge": "totp_0", "code": "000000"}, session)
    assert "the picture is a new one" in late.text
    done = console.post("/security/authenticator", {"challenge": "totp_1", "code": "123456"}, session)
    assert (done.status, done.headers["location"]) == (303, "/security")


def test_the_security_page_takes_four_calls(console: ConsoleHarness) -> None:
    console.fakes.offer_everything()
    session = console.fakes.sign_in()
    console.fakes.calls.clear()
    page = console.get("/security", session)
    assert "login.example.ca" in page.text
    assert len(console.fakes.calls) == 4


def test_a_step_up_by_password_goes_on_with_what_was_asked(console: ConsoleHarness) -> None:
    console.fakes.offer_everything()
    session = console.fakes.sign_in()
    console.fakes.is_fresh = False
    pending = '{"method": "GET", "path": "/security/password", "fields": []}'
    fields = {"pending": pending, "kind": "password", "password": PASSWORD, "code": "123456"}
    done = console.post("/confirm", fields, session)
    assert (done.status, done.headers["location"]) == (303, "/security/password")
