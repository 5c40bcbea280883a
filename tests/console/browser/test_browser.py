"""What people do with the console, in a real browser."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from console.web.assets import Assets
from services.auth.core.key_format import ApiKey
from tests.console.auth import CODE_PATTERN, KEY_PATTERN, only_match
from tests.console.auth_rows import CODE, INVITATION
from tests.console.browser.conftest import PATIENCE_MS, OpenPage, sizes_of_responses
from tests.console.harness import COOKIE, ConsoleHarness

expect.set_options(timeout=PATIENCE_MS)
KEY = ApiKey("0123456789ABCDEF", "a" * 33).reveal()


def with_authenticator(page: Page) -> Any:
    """Gives the browser a device that holds passkeys, and always agrees."""
    session = page.context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
    session.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    return session


def test_a_link_signs_in_by_a_click_and_its_code_reaches_no_server(
    console: ConsoleHarness, open_page: OpenPage
) -> None:
    page = open_page(f"/sign-in?next=%2Fkeys#{CODE}", signed_in=False)
    expect(page.get_by_label("Code of your sign-in link")).to_have_value(CODE)
    expect(page.get_by_text("Your link is ready")).to_be_visible()
    assert CODE not in page.url
    # Which ways there are to sign in is all that was asked.
    assert console.backends.calls == ["SignInService.GetSignInMethods"]
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("heading", name="Keys", level=1)).to_be_visible()
    [cookie] = [cookie for cookie in page.context.cookies() if cookie.get("name") == COOKIE]
    assert cookie.get("httpOnly") is True
    # Scripts see the reader's time zone, and nothing else.
    assert page.evaluate("document.cookie").startswith("legato-zone=")
    assert ";" not in page.evaluate("document.cookie")


def test_without_javascript_one_can_sign_in_create_a_key_and_revoke_it(
    console: ConsoleHarness, open_page: OpenPage
) -> None:
    page = open_page("/sign-in", signed_in=False, java_script_enabled=False)
    page.get_by_label("Code of your sign-in link").fill(CODE.lower())
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.get_by_role("link", name="Keys").click()
    page.get_by_role("link", name="Create a key").first.click()
    page.get_by_label("Name", exact=True).fill("Report")
    page.get_by_role("button", name="Create the key").click()
    expect(page.get_by_text(KEY_PATTERN).first).to_be_visible()
    page.get_by_role("link", name="I have saved it").click()
    page.get_by_role("link", name="Report").click()
    page.locator("summary", has_text="Revoke").click()
    page.get_by_role("button", name="Revoke this key").click()
    expect(page.get_by_role("status")).to_contain_text("It took effect on every edge")


def test_a_passkey_is_added_and_signs_in(console: ConsoleHarness, open_page: OpenPage) -> None:
    page = open_page("/security/passkeys/new")
    with_authenticator(page)
    page.get_by_label("Name of the passkey").fill("Work laptop")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("status")).to_contain_text("The passkey was added")
    expect(page.get_by_text("Work laptop").first).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("status")).to_contain_text("You are signed out")
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page.get_by_role("heading", name="Analytical Engines")).to_be_visible()


def test_a_new_key_is_gone_after_reload_and_back(console: ConsoleHarness, open_page: OpenPage) -> None:
    page = open_page("/keys/new")
    page.get_by_role("button", name="Create the key").click()
    expect(page.locator("#api-key")).to_have_text(KEY_PATTERN)
    secret = only_match(KEY_PATTERN, page.content())
    assert secret not in page.url + page.title()
    page.reload()
    expect(page.get_by_role("status")).to_contain_text("What you made was shown once")
    assert secret not in page.content()
    page.goto("/keys")
    expect(page.get_by_role("heading", name="Keys", level=1)).to_be_visible()
    page.go_back(wait_until="commit")
    page.wait_for_load_state("domcontentloaded")
    assert secret not in page.content()
    page.go_forward(wait_until="commit")
    page.wait_for_load_state("domcontentloaded")
    assert secret not in page.content()
    assert len(console.auth.list_keys()) == 1


@pytest.mark.parametrize("java_script_enabled", [True, False])
def test_a_reload_neither_voids_recovery_codes_nor_invites_again(
    console: ConsoleHarness, open_page: OpenPage, java_script_enabled: bool
) -> None:
    page = open_page("/security", java_script_enabled=java_script_enabled)
    page.get_by_role("button", name="Make recovery codes").click()
    expect(page.get_by_text(CODE_PATTERN)).to_be_visible()
    page.reload()
    expect(page.get_by_role("status")).to_contain_text("The codes were shown once, and they work")
    page.goto("/settings")
    page.get_by_text("Invite a member").click()
    page.get_by_role("button", name="Make the invitation").click()
    expect(page.get_by_text(re.compile(f"/invitation#{CODE_PATTERN.pattern}"))).to_be_visible()
    for _ in range(2):
        page.reload()
        expect(page.get_by_role("heading", name="Settings", level=1)).to_be_visible()
    made = console.auth.events("recovery_codes.generated", "member.invited")
    assert [event.action for event in made] == ["recovery_codes.generated", "member.invited"]


def test_a_new_key_is_in_no_cache_and_no_storage(console: ConsoleHarness, open_page: OpenPage) -> None:
    page = open_page("/keys/new")
    page.get_by_role("button", name="Create the key").click()
    expect(page.locator("#api-key")).to_have_text(KEY_PATTERN)
    kept = page.evaluate(
        """async () => JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage), document.cookie,
          await caches.keys(), (await indexedDB.databases()).map((each) => each.name), history.state])"""
    )
    # Nothing but the reader's time zone.
    assert kept == '[[],[],"legato-zone=UTC",[],[],null]'
    # A page of its own, in the same browser, finds nothing at the address either.
    other = page.context.new_page()
    other.goto(page.url)
    assert not KEY_PATTERN.search(other.content())


def test_a_leaked_key_stays_in_the_browser(console: ConsoleHarness, open_page: OpenPage) -> None:
    console.backends.fill()
    console.auth.change_key("key_0000000000000001", key_id="key_0123456789ABCDEF")
    page = open_page("/keys/identify")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(f"{request.url} {request.post_data}"))
    page.get_by_label("The key, or the text around it").fill(f"export KEY={KEY[:-1]}x")
    page.get_by_role("button", name="Identify").click()
    expect(page.get_by_text("The checksum does not match")).to_be_visible()
    assert sent == []
    page.get_by_label("The key, or the text around it").fill(f"export KEY={KEY} # oops")
    page.get_by_role("button", name="Identify").click()
    expect(page.get_by_role("heading", name="Nightly report")).to_be_visible()
    assert not any("sk-legato" in text or "aaaa" in text for text in sent)


def test_a_form_of_another_origin_changes_nothing(console: ConsoleHarness, open_page: OpenPage) -> None:
    """A page of another port is the same site: the browser sends the cookie along."""
    console.backends.fill()
    page = open_page("/keys")
    page.route(
        "http://localhost:1/*",
        lambda route: route.fulfill(
            content_type="text/html",
            body=f'<form method="post" action="{console.origin}/keys/key_0000000000000001/revoke"><button>Go</button>',
        ),
    )
    page.goto("http://localhost:1/")
    console.backends.calls.clear()
    page.get_by_role("button", name="Go").click()
    expect(page.get_by_text("This form was not sent by the console")).to_be_visible()
    assert console.backends.calls == []


def test_the_keyboard_reaches_the_pages(console: ConsoleHarness, open_page: OpenPage) -> None:
    # The next page fades in, as it does for most people.
    page = open_page("/", reduced_motion="no-preference")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("k")
    expect(page.get_by_role("heading", name="Keys", level=1)).to_be_visible()


def test_shortcuts_can_be_switched_off_and_stay_off(console: ConsoleHarness, open_page: OpenPage) -> None:
    page = open_page("/")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Shortcuts are on").uncheck()
    page.keyboard.press("Escape")
    page.goto("/keys")
    page.keyboard.press("?")
    page.keyboard.press("g")
    page.keyboard.press("u")
    # Had one of them worked, this would come after it.
    page.get_by_role("link", name="Security").click()
    expect(page.get_by_role("heading", name="Security", level=1)).to_be_visible()
    expect(dialog).to_be_hidden()
    # Where they are off, no key leads to the list: the switch is on a page, too.
    switch = page.get_by_role("checkbox", name="Shortcuts are on")
    switch.check()
    page.reload()
    expect(switch).to_be_checked()
    page.locator("h1").click()
    page.keyboard.press("?")
    expect(dialog).to_be_visible()


def test_the_focus_is_on_what_was_done_after_a_key_is_revoked(console: ConsoleHarness, open_page: OpenPage) -> None:
    console.backends.fill()
    page = open_page("/keys/key_0000000000000001")
    page.locator("summary", has_text="Revoke").click()
    page.get_by_role("button", name="Revoke this key").press("Enter")
    told = page.get_by_role("status")
    expect(told).to_contain_text("It took effect on every edge")
    expect(told).to_be_focused()


def test_a_field_that_is_wrong_has_another_border(console: ConsoleHarness, open_page: OpenPage) -> None:
    page = open_page("/keys/new")
    page.get_by_label("Dollars a day").fill("five")
    page.get_by_role("button", name="Create the key").click()
    wrong, right = page.locator("#field-day"), page.locator("#field-month")
    expect(wrong).to_have_attribute("aria-invalid", "true")
    problem = page.locator("#problem-day").evaluate("each => getComputedStyle(each).color")
    expect(wrong).to_have_css("border-top-color", problem)
    expect(right).not_to_have_css("border-top-color", problem)


def test_on_a_phone_the_menu_opens_without_a_script(console: ConsoleHarness, open_page: OpenPage) -> None:
    page = open_page("/", phone=True, java_script_enabled=False)
    expect(page.get_by_role("link", name="Security")).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("link", name="Security").click()
    expect(page.get_by_role("heading", name="Security", level=1)).to_be_visible()


def test_an_invitation_is_shown_then_accepted(console: ConsoleHarness, open_page: OpenPage) -> None:
    page = open_page(f"/invitation#{INVITATION}", signed_in=False)
    page.get_by_role("button", name="Show the invitation").click()
    expect(page.get_by_role("heading", name="Join Analytical Engines")).to_be_visible()
    page.get_by_label("Your name").fill("Grace Hopper")
    page.get_by_role("button", name="Accept").click()
    expect(page.get_by_role("heading", name="Add a passkey")).to_be_visible()


def test_a_page_is_small(console: ConsoleHarness, open_page: OpenPage) -> None:
    console.backends.fill()
    sizes = sizes_of_responses(open_page("about:blank"), "/")
    assert 1 <= len(sizes) <= 4
    assert sum(sizes) < 30_000


def test_times_are_shown_in_the_zone_of_the_reader(console: ConsoleHarness, open_page: OpenPage) -> None:
    console.backends.fill()
    page = open_page("/keys/key_0000000000000001", timezone_id="America/St_Johns", locale="en-CA")
    first = page.locator("time[data-to=minute]").first
    expect(first).to_have_attribute("title", re.compile("UTC"))
    # As the server writes days: the day before the month.
    expect(first).to_have_text(re.compile(r"^\d{1,2}\s[A-Z][a-z]{2,3}(\s\d{4})?,\s\d\d:\d\d$"))


def test_tables_do_not_move_when_times_are_written_anew(console: ConsoleHarness, open_page: OpenPage) -> None:
    console.backends.fill()
    page = open_page("about:blank")
    _arrive_before_the_script(page, "/credit/entries", "console.js")
    expect(page.locator("time[data-to=minute]").first).not_to_contain_text("UTC")
    assert _shifts(page) == 0


@pytest.mark.parametrize(
    ("path", "script", "shown"),
    [
        ("/operator", "operator_models.js", "[data-refreshing]"),
        ("/operator/keys", "identify.js", "form[data-identify]"),
        ("/security/passkeys/new", "passkey.js", "form[data-passkey]"),
        ("/sign-in#ABCD-EFGH-JKLM", "code.js", "[data-with-code]"),
        ("/sign-in", "passkey.js", "form[data-passkey]"),
    ],
)
def test_nothing_moves_when_a_script_shows_what_needs_it(
    console: ConsoleHarness, open_page: OpenPage, path: str, script: str, shown: str
) -> None:
    console.backends.fill()
    console.backends.fill_operator()
    console.auth.be_operator()
    page = open_page("about:blank", phone=True, signed_in=not path.startswith("/sign-in"))
    _arrive_before_the_script(page, path, script)
    expect(page.locator(shown)).to_be_visible()
    assert _shifts(page) == 0


def _arrive_before_the_script(page: Page, path: str, script: str) -> None:
    """Opens a page whose script comes so late that the page could be painted before."""
    held: list[Route] = []
    address = f"**{Assets().path_of(script)}"

    def hold(route: Route) -> None:
        held.append(route)

    page.route(address, hold)
    with page.expect_request(address):
        page.goto(path, wait_until="commit")
    page.locator("main").wait_for(state="attached")
    # Long enough to paint, if that were allowed.
    page.wait_for_timeout(300)
    held.pop().continue_()


def _shifts(page: Page) -> int:
    """Counts how often something moved since the page was first painted."""
    page.evaluate("new Promise(painted => requestAnimationFrame(() => requestAnimationFrame(painted)))")
    shifts: int = page.evaluate("""new Promise(told => new PerformanceObserver(list => told(list.getEntries().length))
        .observe({ type: "layout-shift", buffered: true }) ?? setTimeout(told, 500, 0))""")
    return shifts


def test_the_end_of_the_menu_is_in_sight_however_long_the_menu_is(console: ConsoleHarness, open_page: OpenPage) -> None:
    console.auth.be_operator()
    page = open_page("/")
    page.set_viewport_size({"width": 1280, "height": 640})
    button = page.get_by_role("button", name="Sign out").bounding_box()
    assert button is not None
    assert button["y"] + button["height"] <= 640
    # It covers no page of the list for good.
    page.get_by_role("link", name="Operator").click()
    expect(page.get_by_role("heading", name="Models", exact=True)).to_be_visible()
