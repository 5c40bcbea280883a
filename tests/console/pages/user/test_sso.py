"""Signing in by the issuer of OpenID Connect."""

import html
import re
from urllib.parse import urlencode

from tests.console.auth_rows import INVITATION
from tests.console.harness import COOKIE, Answer, ConsoleHarness

SSO_COOKIE = f"{COOKIE}-sso"


def approve(console: ConsoleHarness, url: str) -> str:
    """Signs in at the issuer, and returns the path that the browser comes back to."""
    assert url.startswith(f"{console.auth.issuer.issuer}/authorize?")
    return f"/sign-in/sso/return?{urlencode(console.auth.issuer.begin(html.unescape(url)))}"


def browser_of(started: Answer) -> str:
    [cookie] = [cookie for cookie in started.cookies if cookie.startswith(SSO_COOKIE)]
    assert "httponly" in cookie.lower()
    assert "samesite=lax" in cookie.lower()
    return cookie.partition(";")[0]


def link_in(page: Answer) -> str:
    [url] = re.findall(r'href="(http://[^"]+/authorize[^"]+)"', page.text)
    return str(url)


def test_single_sign_on_starts_with_a_link_and_ends_in_the_browser_that_began(console: ConsoleHarness) -> None:
    console.backends.offer_everything()
    for headers, status in ((None, 303), ({}, 401), ({"Cookie": f"{SSO_COOKIE}=another.%2F"}, 401)):
        started = console.get("/sign-in/sso?next=/keys")
        assert started.status == 303
        path = approve(console, started.headers["location"])
        finished = console.get(path, headers={"Cookie": browser_of(started)} if headers is None else headers)
        assert finished.status == status
        assert any(cookie.startswith(f"{COOKIE}=") for cookie in finished.cookies) == (status == 303)
        assert status != 303 or finished.headers["location"] == "/keys"


def test_single_sign_on_of_a_signed_in_user_ends_the_session_before(console: ConsoleHarness) -> None:
    console.backends.offer_everything()
    session = console.auth.sign_in()
    started = console.get("/sign-in/sso?next=/keys", session)
    headers = {"Cookie": f"{COOKIE}={session}; {browser_of(started)}"}
    assert console.get(approve(console, started.headers["location"]), headers=headers).status == 303
    assert console.get("/keys", session).headers["location"] == "/sign-in?next=%2Fkeys"


def test_the_way_back_leads_to_pages_of_the_console_only(console: ConsoleHarness) -> None:
    console.backends.offer_everything()
    started = console.get("/sign-in/sso")
    token = browser_of(started).partition(".")[0]
    headers = {"Cookie": f"{token}.https%3A%2F%2Fevil.example"}
    finished = console.get(approve(console, started.headers["location"]), headers=headers)
    assert finished.headers["location"] == "/"


def test_an_invitation_can_be_accepted_with_single_sign_on_by_a_link(console: ConsoleHarness) -> None:
    console.backends.offer_everything()
    assert "/invitation/sso" in console.post("/invitation", {"code": INVITATION}).text
    page = console.post("/invitation/sso", {"code": INVITATION})
    assert page.status == 200
    console.auth.issuer.claims = {"sub": "subject-2", "name": "Grace"}
    joined = console.get(approve(console, link_in(page)), headers={"Cookie": browser_of(page)})
    assert joined.status == 303
    assert (console.auth.users()[-1].name, console.auth.invitations()) == ("Grace", [])


def test_linking_an_identity_needs_a_step_up_and_shows_a_link(console: ConsoleHarness) -> None:
    console.backends.offer_everything()
    session = console.auth.sign_in()
    page = console.post("/security/identities", session=session)
    assert "prompt=login" in link_in(page)
    console.auth.grow_stale()
    asked = console.post("/security/identities", session=session)
    assert asked.status == 403
    assert "/sign-in/sso?again=1" in asked.text
