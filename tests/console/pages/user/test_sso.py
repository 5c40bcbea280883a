"""Signing in by the issuer of OpenID Connect."""

from tests.console.fakes.credentials import ISSUER_URL
from tests.console.fakes.services import INVITATION
from tests.console.harness import COOKIE, ConsoleHarness

SSO_COOKIE = f"{COOKIE}-sso"


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


def test_single_sign_on_of_a_signed_in_user_ends_the_session_before(console: ConsoleHarness) -> None:
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
