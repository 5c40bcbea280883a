"""Ways to sign in, and where they lead."""

import html
import re
from urllib.parse import quote

from tests.console.auth import ISSUER_HOST
from tests.console.auth_rows import CODE, EMAIL, PASSWORD, TOTP_CODE
from tests.console.backends import not_answering
from tests.console.harness import COOKIE, ConsoleHarness


def test_a_link_signs_in_once_and_leads_to_an_own_path_alone(console: ConsoleHarness) -> None:
    answer = console.post("/sign-in", {"code": CODE, "next": "/keys"})
    assert (answer.status, answer.headers["location"]) == (303, "/keys")
    [cookie] = answer.cookies
    assert re.match(rf"{COOKIE}=[\w-]{{43}};", cookie)
    for part in ("HttpOnly", "Path=/", "SameSite=lax", "Secure"):
        assert part in cookie
    again = console.post("/sign-in", {"code": CODE})
    assert again.status == 401
    assert again.cookies == ()
    for elsewhere in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"):
        console.auth.put_link()
        assert console.post("/sign-in", {"code": CODE, "next": elsewhere}).headers["location"] == "/"


def test_signing_in_leads_back_to_the_page_with_its_query(console: ConsoleHarness) -> None:
    for path in ("/usage?by=key&period=90", "/keys?q=a%26b&show=active", "/keys?q=%2F%2Fevil.example"):
        asked = console.get(path)
        assert asked.headers["location"] == f"/sign-in?next={quote(path, safe='')}"
        shown = console.get(asked.headers["location"]).text
        [kept] = set(re.findall(r'name="next" value="([^"]+)"', shown.partition("<footer")[0]))
        assert html.unescape(kept) == path
        console.auth.put_link()
        assert console.post("/sign-in", {"code": CODE, "next": path}).headers["location"] == path
    # A query that makes an address too long for a header is left out.
    assert console.get(f"/keys?q={'x' * 4000}").headers["location"] == "/sign-in?next=%2Fkeys"


def test_too_many_sign_ins_say_how_long_to_wait(console: ConsoleHarness) -> None:
    for _ in range(10):
        assert console.post("/sign-in", {"code": "AAAA-BBBB"}).status == 401
    answer = console.post("/sign-in", {"code": "AAAA-BBBB"})
    assert (answer.status, answer.headers["retry-after"]) == (429, "6")
    assert "Try again in 6 seconds" in answer.text


def test_the_sign_in_page_offers_what_is_set_up_and_nothing_else(console: ConsoleHarness) -> None:
    plain = console.get("/sign-in").text
    for words in ("/sign-in/sso", "/sign-in/password", "/sign-in/mail"):
        assert words not in plain
    console.backends.offer_everything()
    full = console.get("/sign-in").text
    for words in ("/sign-in/sso", "/sign-in/password", "/sign-in/mail", f"Sign in with {ISSUER_HOST}"):
        assert words in full


def test_the_sign_in_page_is_there_without_auth(console: ConsoleHarness) -> None:
    console.backends.fail = {"SignInService.GetSignInMethods": not_answering()}
    assert console.get("/sign-in").status == 200


def test_a_password_signs_in_and_a_wrong_one_says_what_a_wrong_code_says(console: ConsoleHarness) -> None:
    console.backends.offer_everything()
    fields = {"email": EMAIL, "password": PASSWORD, "code": TOTP_CODE, "next": "/keys"}
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
    console.backends.offer_everything()
    answers = [console.post("/sign-in/mail", {"email": f"{name}@example.ca"}) for name in ("ada", "unknown")]
    assert answers[0].status == 303
    assert {(answer.status, answer.cookies) for answer in answers} == {(303, answers[0].cookies)}
    # One of them has got a link, which signs in.
    assert console.post("/sign-in", {"code": console.auth.mailed_code()}).status == 303


def test_a_link_opened_by_a_signed_in_user_asks_which_to_be(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    shown = console.get("/sign-in?next=/keys%3Fq%3Da", session)
    for words in ("You are signed in as Ada Lovelace", 'href="/keys?q=a"', "Sign in with the link"):
        assert words in shown.text
    # Nor does a form that was opened before decide: nothing is used up.
    asked = console.post("/sign-in", {"code": CODE, "next": "/keys"}, session, {"Accept-Encoding": "gzip"})
    assert (asked.status, f'value="{CODE}"' in asked.text) == (200, True)
    assert "content-encoding" not in asked.headers
    assert console.auth.has_link()
    fields = {"code": CODE, "next": "/keys", "instead_of": "user_1"}
    signed_in = console.post("/sign-in", fields, session)
    assert (signed_in.status, signed_in.headers["location"]) == (303, "/keys")
    # The session before has ended, and not only in this browser.
    assert console.get("/keys", session).status == 303
