"""Links, single sign-on, passwords and confirmations in a browser, with its cookies and the pages' policy."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.console.browser.conftest import PATIENCE_MS, OpenPage
from tests.console.browser.test_browser import with_authenticator
from tests.console.fakes.credentials import MAILED_CODE, PASSWORD
from tests.console.fakes.services import CODE
from tests.console.harness import ConsoleHarness


@pytest.fixture
def issuer(console: ConsoleHarness) -> Iterator[None]:
    """A page on a site of its own that leads back."""
    back = f"{console.origin}/sign-in/sso/return?state=state-1&code=code-1"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f'<!doctype html><title>Issuer</title><a href="{back}">Approve</a>'.encode()
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    console.fakes.offer_everything()
    console.fakes.issuer_url = f"http://127.0.0.1:{server.server_port}/authorize"
    yield
    server.shutdown()
    server.server_close()
    thread.join(60)


@pytest.mark.usefixtures("issuer")
def test_single_sign_on_goes_to_the_issuer_and_back_to_where_it_began(
    console: ConsoleHarness, open_page: OpenPage
) -> None:
    page = open_page("/sign-in?next=/keys", signed_in=False)
    page.get_by_role("link", name="Sign in with login.example.ca").click()
    expect(page).to_have_title("Issuer", timeout=PATIENCE_MS)
    page.get_by_role("link", name="Approve").click()
    expect(page).to_have_url(f"{console.origin}/keys", timeout=PATIENCE_MS)
    assert {cookie["name"] for cookie in page.context.cookies()} == {"__Host-legato", "legato-zone"}


@pytest.mark.usefixtures("issuer")
def test_an_identity_is_linked_by_way_of_a_link_that_the_policy_allows(
    console: ConsoleHarness, open_page: OpenPage
) -> None:
    page = open_page("/security")
    page.get_by_role("button", name="Link login.example.ca").click()
    page.get_by_role("link", name="Continue").click()
    expect(page).to_have_title("Issuer", timeout=PATIENCE_MS)


def test_a_link_opened_while_signed_in_asks_which_to_be(console: ConsoleHarness, open_page: OpenPage) -> None:
    page = open_page(f"/sign-in?next=%2Fkeys#{CODE}")
    expect(page.get_by_role("heading", name="Who do you want to be?")).to_be_visible()
    expect(page.get_by_label("Code of your sign-in link")).to_have_value(CODE)
    page.get_by_role("link", name="Go on as Ada Lovelace").click()
    expect(page).to_have_url(f"{console.origin}/keys")
    assert console.fakes.used_codes == set()
    page.goto(f"/sign-in#{CODE}")
    page.get_by_role("button", name="Sign in with the link").click()
    expect(page.get_by_role("heading", name="Analytical Engines")).to_be_visible()
    assert len(console.fakes.sessions) == 1
    assert console.fakes.used_codes == {CODE.replace("-", "")}
    # Without a link there is nothing to choose.
    page.goto("/sign-in?next=%2Fusage%3Fby%3Dkey")
    expect(page).to_have_url(f"{console.origin}/usage?by=key")


def test_without_javascript_a_link_asks_too(console: ConsoleHarness, open_page: OpenPage) -> None:
    page = open_page(f"/sign-in#{CODE}", java_script_enabled=False)
    page.get_by_label("Code of your sign-in link").fill(CODE)
    page.get_by_role("button", name="Sign in with the link").click()
    expect(page.get_by_role("heading", name="Analytical Engines")).to_be_visible()
    assert len(console.fakes.sessions) == 1


def test_a_user_with_nothing_but_a_link_adds_a_passkey_and_goes_on_with_the_form(
    console: ConsoleHarness, open_page: OpenPage
) -> None:
    page = open_page("/keys/new")
    with_authenticator(page)
    console.fakes.is_fresh = False
    page.get_by_label("Name", exact=True).fill("Report")
    page.get_by_role("button", name="Create the key").click()
    expect(page.get_by_role("heading", name="Confirm that it is you")).to_be_visible()
    page.get_by_role("button", name="Add a passkey").click()
    expect(page.get_by_role("status")).to_contain_text("The passkey was added. Now confirm with it.")
    page.get_by_role("button", name="Use your passkey").click()
    expect(page.get_by_role("heading", name="Report", level=1)).to_be_visible()
    assert [each.name for each in console.fakes.keys] == ["Report"]


def test_a_mailed_code_confirms_without_javascript(console: ConsoleHarness, open_page: OpenPage) -> None:
    console.fakes.methods.mail = True
    page = open_page("/keys/new", java_script_enabled=False)
    console.fakes.is_fresh = False
    page.get_by_role("button", name="Create the key").click()
    page.get_by_role("button", name="Mail me a code").click()
    page.get_by_label("Code", exact=True).fill(MAILED_CODE)
    page.get_by_role("button", name="Confirm", exact=True).click()
    expect(page.get_by_text("Save the key now")).to_be_visible()


def test_a_password_signs_in_without_javascript(console: ConsoleHarness, open_page: OpenPage) -> None:
    console.fakes.offer_everything()
    page = open_page("/sign-in", signed_in=False, java_script_enabled=False)
    page.get_by_text("Other ways to sign in").click()
    page.get_by_label("Email address", exact=True).fill("ada@example.ca")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("Code of your authenticator app").fill("123456")
    page.get_by_role("button", name="Sign in with your password").click()
    expect(page).to_have_url(f"{console.origin}/", timeout=PATIENCE_MS)
