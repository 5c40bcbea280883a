"""Pages of passwords, authenticator apps and single sign-on, over HTTP with fake services behind them."""

import html
import re

from protos.auth.v1 import users_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from tests.console.fakes.credentials import ISSUER_URL, MAILED_CODE, PASSWORD, TOTP_SECRET, sign_in_failed
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


def test_single_sign_on_of_somebody_who_is_signed_in_ends_the_session_before(console: ConsoleHarness) -> None:
    session = console.fakes.sign_in()
    headers = {"Cookie": f"{COOKIE}={session}; {SSO_COOKIE}=browser-1.%2Fkeys"}
    assert console.get("/sign-in/sso/return?state=state-1&code=code-1", headers=headers).status == 303
    assert session not in console.fakes.sessions


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


def test_a_mailed_code_confirms_and_goes_on_with_what_was_asked(console: ConsoleHarness) -> None:
    console.fakes.methods.mail, console.fakes.is_fresh = True, False
    session = console.fakes.sign_in()
    asked = console.get("/security/passkeys/new", session)
    # With mail, a first passkey needs the proof that mail is.
    assert ("Mail me a code" in asked.text, "Add a passkey" in asked.text) == (True, False)
    [pending] = {html.unescape(each) for each in re.findall(r'name="pending" value="([^"]+)"', asked.text)}
    sent = console.post("/confirm/mail", {"pending": pending}, session)
    assert console.fakes.mailed_codes == 1
    assert "A code is on its way to your address" in sent.text
    assert {html.unescape(each) for each in re.findall(r'name="pending" value="([^"]+)"', sent.text)} == {pending}
    done = console.post("/confirm", {"pending": pending, "kind": "link", "code": MAILED_CODE}, session)
    assert done.headers["location"] == "/security/passkeys/new"


def test_whoever_has_been_mailed_too_much_is_told_to_wait(console: ConsoleHarness) -> None:
    console.fakes.methods.mail, console.fakes.is_fresh = True, False
    refusal = LegatoError(Reason.TOO_MANY_SIGN_INS, "Too many attempts.", retry_after_s=41)
    console.fakes.fail = {"CredentialService.SendStepUpCode": refusal}
    answer = console.post("/confirm/mail", {"pending": "{}"}, console.fakes.sign_in())
    assert (answer.status, "Try again in 41 seconds" in answer.text) == (429, True)


def test_the_hint_has_a_command_that_makes_a_link_for_this_user(console: ConsoleHarness) -> None:
    console.fakes.is_fresh = False
    session = console.fakes.sign_in()
    asked = console.get("/security/passkeys/new", session)
    assert "legato users sign-in-link user_1" in asked.text
    # Some paste the whole link.
    pending = '{"method": "GET", "path": "/security/password", "fields": []}'
    fields = {"pending": pending, "kind": "link", "code": f"{console.origin}/sign-in#{CODE}"}
    assert console.post("/confirm", fields, session).headers["location"] == "/security/password"


def test_a_link_opened_by_somebody_who_is_signed_in_asks_which_to_be(console: ConsoleHarness) -> None:
    session = console.fakes.sign_in()
    shown = console.get("/sign-in?next=/keys%3Fq%3Da", session)
    for words in ("You are signed in as Ada Lovelace", 'href="/keys?q=a"', "Sign in with the link"):
        assert words in shown.text
    # Nor does a form that was opened before decide: nothing is used up.
    asked = console.post("/sign-in", {"code": CODE, "next": "/keys"}, session, {"Accept-Encoding": "gzip"})
    assert (asked.status, f'value="{CODE}"' in asked.text) == (200, True)
    assert "content-encoding" not in asked.headers
    assert console.fakes.used_codes == set()
    fields = {"code": CODE, "next": "/keys", "instead_of": "user_1"}
    signed_in = console.post("/sign-in", fields, session)
    assert (signed_in.status, signed_in.headers["location"]) == (303, "/keys")
    # The session before has ended, and not only in this browser.
    assert console.get("/keys", session).status == 303


def test_an_invitation_asks_who_accepts_it(console: ConsoleHarness) -> None:
    session = console.fakes.sign_in()
    shown = console.post("/invitation", {"code": INVITATION}, session)
    assert "Accept as Ada Lovelace" in shown.text
    assert "Accept as a new user" in shown.text
    fields = {"code": INVITATION, "name": "Grace", "as_new": "yes"}
    accepted = console.post("/invitation/accept", fields, session)
    assert accepted.headers["location"] == "/security/passkeys/new"
    request = next(each for each in console.fakes.requests if isinstance(each, pb.AcceptInvitationRequest))
    assert (request.name, request.session_token) == ("Grace", "")
    assert console.get("/keys", session).status == 303


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
