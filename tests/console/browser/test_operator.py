"""The operators' pages in a browser: accessible in every state, and figures that follow while the page is visible."""

import pytest
from playwright.sync_api import Page, expect

from tests.console.backends import not_answering
from tests.console.browser.axe import DAYLIGHT, NIGHT, Look, assert_accessible, take_look
from tests.console.browser.conftest import PATIENCE_MS, OpenPage
from tests.console.browser.french import in_french
from tests.console.browser.pages import (
    OPERATOR_ACCOUNT,
    OPERATOR_NAMES,
    assert_accessible_in_one_look,
    look_of,
    open_state,
    other_look_of,
)
from tests.console.harness import ConsoleHarness
from tests.console.processes import METRICS


@pytest.mark.parametrize("name", OPERATOR_NAMES)
def test_a_page_is_accessible(console: ConsoleHarness, visited: Page, name: str) -> None:
    take_look(visited, DAYLIGHT)
    open_state(visited, console, name)
    assert_accessible_in_one_look(visited, console, name, look_of(name))
    assert visited.evaluate("window.refusedByPolicy") == []


@pytest.mark.long
@pytest.mark.parametrize("name", OPERATOR_NAMES)
def test_a_page_is_accessible_in_the_other_look_too(console: ConsoleHarness, visited: Page, name: str) -> None:
    take_look(visited, DAYLIGHT)
    open_state(visited, console, name)
    assert_accessible_in_one_look(visited, console, name, other_look_of(name))


@pytest.mark.parametrize(
    "look", [pytest.param(DAYLIGHT, id="daylight", marks=pytest.mark.long), pytest.param(NIGHT, id="night")]
)
def test_pages_that_answer_a_form_are_accessible(console: ConsoleHarness, open_page: OpenPage, look: Look) -> None:
    console.auth.be_operator()
    console.backends.fill_operator()
    console.metering.falsify_balance(5)
    page = in_french(open_page(OPERATOR_ACCOUNT, locale="fr-CA")) if look is NIGHT else open_page(OPERATOR_ACCOUNT)
    page.get_by_label("Amount in dollars").fill("5.00")
    page.get_by_label("The same amount again").fill("50.00")
    page.get_by_role("button", name="Book").click()
    page.get_by_text("The two amounts differ").first.wait_for()
    assert_accessible(page, (look,))
    page.goto("/operator/users")
    page.get_by_label("Name", exact=True).fill("Mary")
    page.get_by_role("button", name="Add the user").click()
    page.get_by_text("The link is shown once").wait_for()
    assert_accessible(page, (look,))
    page.goto("/operator/ledger")
    page.get_by_role("button", name="Run the audit").click()
    page.get_by_text("One violation").wait_for()
    assert_accessible(page, (look,))


def test_the_status_follows_while_the_page_is_visible(console: ConsoleHarness, open_page: OpenPage) -> None:
    console.auth.be_operator()
    console.backends.fill_operator()
    page = open_page("/operator")
    running = page.locator('[data-live="running"]')
    expect(running).to_have_text("86")
    console.backends.processes.metrics["edge-1"] = METRICS["edge"]().replace("streams 43.0", "streams 57.0")
    expect(running).to_have_text("100", timeout=PATIENCE_MS)
    # Something that is new on the page: it is loaded again.
    console.backends.processes.missing = {"edge-1": ["router"]}
    page.get_by_text("edge-1 is not ready: router.").wait_for()


def test_the_status_stays_and_says_how_old_it_is_while_auth_does_not_answer(
    console: ConsoleHarness, open_page: OpenPage
) -> None:
    console.auth.be_operator()
    console.backends.fill_operator()
    page = open_page("/operator")
    running = page.locator('[data-live="running"]')
    console.backends.fail = {"SignInService.ResolveSession": not_answering()}
    page.get_by_text("The console does not answer. The figures are from").wait_for(timeout=PATIENCE_MS)
    expect(running).to_have_text("86")
    console.backends.fail = {}
    console.backends.processes.metrics["edge-1"] = METRICS["edge"]().replace("streams 43.0", "streams 57.0")
    expect(running).to_have_text("100", timeout=PATIENCE_MS)


def test_the_status_works_without_scripts(console: ConsoleHarness, open_page: OpenPage) -> None:
    console.auth.be_operator()
    console.backends.fill_operator()
    page = open_page("/operator", java_script_enabled=False)
    console.backends.processes.metrics["edge-1"] = METRICS["edge"]().replace("streams 43.0", "streams 57.0")
    page.get_by_role("link", name="Refresh").click()
    expect(page.locator('[data-live="running"]')).to_have_text("100")


def test_a_pasted_key_stays_in_the_browser(console: ConsoleHarness, open_page: OpenPage) -> None:
    console.auth.be_operator()
    console.backends.fill_operator()
    page = open_page("/operator/keys")
    page.get_by_label("The key, or the text around it").fill("sk-legato-not-a-key")
    page.get_by_role("button", name="Find its owner").first.click()
    expect(page.get_by_role("alert")).to_contain_text("There is no key in this text")
    assert "KeyAdminService.GetKey" not in console.backends.calls
