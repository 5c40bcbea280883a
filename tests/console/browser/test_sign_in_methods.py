"""Links, single sign-on, passwords and confirmations in a browser, with its cookies and the pages' policy."""

from playwright.sync_api import expect

from tests.console.auth import ISSUER_HOST
from tests.console.auth_rows import CODE, EMAIL, PASSWORD, TOTP_CODE
from tests.console.browser.conftest import PATIENCE_MS, OpenPage
from tests.console.browser.test_browser import with_authenticator
from tests.console.harness import ConsoleHarness


def test_single_sign_on_goes_to_the_issuer_and_back_to_where_it_began(
    console: ConsoleHarness, open_page: OpenPage
) -> None:
    console.backends.offer_everything()
    page = open_page("/sign-in?next=/keys", signed_in=False)
    page.get_by_role("link", name=f"Sign in with {ISSUER_HOST}").click()
    expect(page).to_have_title("Issuer", timeout=PATIENCE_MS)
    page.get_by_role("link", name="Approve").click()
    expect(page).to_have_url(f"{console.origin}/keys", timeout=PATIENCE_MS)
    assert {cookie["name"] for cookie in page.context.cookies()} == {"__Host-legato", "legato-zone"}


def test_an_identity_is_linked_by_way_of_a_link_that_the_policy_allows(
    console: ConsoleHarness, open_page: OpenPage
) -> None:
    console.backends.offer_everything()
    page = open_page("/security")
    page.get_by_role("button", name=f"Link {ISSUER_HOST}").click()
    page.get_by_role("link", name="Continue").click()
    expect(page).to_have_title("Issuer", timeout=PATIENCE_MS)
    console.auth.issuer.claims = {"sub": "subject-2"}
    page.get_by_role("link", name="Approve").click()
    expect(page.get_by_role("status")).to_contain_text("Linked.")
    assert len(console.auth.events("identity.linked")) == 1


def test_a_link_opened_while_signed_in_asks_which_to_be(console: ConsoleHarness, open_page: OpenPage) -> None:
    page = open_page(f"/sign-in?next=%2Fkeys#{CODE}")
    expect(page.get_by_role("heading", name="Who do you want to be?")).to_be_visible()
    expect(page.get_by_label("Code of your sign-in link")).to_have_value(CODE)
    page.get_by_role("link", name="Go on as Ada Lovelace").click()
    expect(page).to_have_url(f"{console.origin}/keys")
    assert console.auth.has_link()
    page.goto(f"/sign-in#{CODE}")
    page.get_by_role("button", name="Sign in with the link").click()
    expect(page.get_by_role("heading", name="Analytical Engines")).to_be_visible()
    assert len(console.auth.sessions()) == 1
    assert not console.auth.has_link()
    # Without a link there is nothing to choose.
    page.goto("/sign-in?next=%2Fusage%3Fby%3Dkey")
    expect(page).to_have_url(f"{console.origin}/usage?by=key")


def test_without_javascript_a_link_asks_too(console: ConsoleHarness, open_page: OpenPage) -> None:
    page = open_page(f"/sign-in#{CODE}", java_script_enabled=False)
    page.get_by_label("Code of your sign-in link").fill(CODE)
    page.get_by_role("button", name="Sign in with the link").click()
    expect(page.get_by_role("heading", name="Analytical Engines")).to_be_visible()
    assert len(console.auth.sessions()) == 1


def test_a_user_with_nothing_but_a_link_adds_a_passkey_and_goes_on_with_the_form(
    console: ConsoleHarness, open_page: OpenPage
) -> None:
    page = open_page("/keys/new")
    with_authenticator(page)
    console.auth.grow_stale()
    page.get_by_label("Name", exact=True).fill("Report")
    page.get_by_role("button", name="Create the key").click()
    expect(page.get_by_role("heading", name="Confirm that it is you")).to_be_visible()
    page.get_by_role("button", name="Add a passkey").click()
    expect(page.get_by_role("status")).to_contain_text("The passkey was added. Now confirm with it.")
    page.get_by_role("button", name="Use your passkey").click()
    expect(page.get_by_role("heading", name="Report", level=1)).to_be_visible()
    assert [each.name for each in console.auth.list_keys()] == ["Report"]


def test_a_mailed_code_confirms_without_javascript(console: ConsoleHarness, open_page: OpenPage) -> None:
    console.auth.offer("mail")
    page = open_page("/keys/new", java_script_enabled=False)
    console.auth.grow_stale()
    page.get_by_role("button", name="Create the key").click()
    page.get_by_role("button", name="Mail me a code").click()
    expect(page.get_by_text("A code is on its way")).to_be_visible()
    page.get_by_label("Code", exact=True).fill(console.auth.mailed_code())
    page.get_by_role("button", name="Confirm", exact=True).click()
    expect(page.get_by_text("Save the key now")).to_be_visible()


def test_a_password_signs_in_without_javascript(console: ConsoleHarness, open_page: OpenPage) -> None:
    console.backends.offer_everything()
    page = open_page("/sign-in", signed_in=False, java_script_enabled=False)
    page.get_by_text("Other ways to sign in").click()
    page.get_by_label("Email address", exact=True).fill(EMAIL)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("Code of your authenticator app").fill(TOTP_CODE)
    page.get_by_role("button", name="Sign in with your password").click()
    expect(page).to_have_url(f"{console.origin}/", timeout=PATIENCE_MS)
