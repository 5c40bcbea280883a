"""Usage, requests and credit in a browser: the reader's days, filters, files, and without JavaScript."""

import csv
import io
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.console.browser.conftest import OpenPage
from tests.console.harness import ConsoleHarness
from tests.console.metering import request_id


def test_days_are_the_reader_s_from_the_second_page_on(console: ConsoleHarness, open_page: OpenPage) -> None:
    console.backends.fill()
    page = open_page("/", timezone_id="America/Toronto")
    page.get_by_role("link", name="Usage").first.click()
    expect(page.get_by_text("Days are those of America/Toronto.")).to_be_visible()
    away = open_page("/", timezone_id="America/St_Johns")
    away.get_by_role("link", name="Usage").first.click()
    expect(away.get_by_text("America/St_Johns is not a number of whole hours from UTC")).to_be_visible()


def _saved(page: Page) -> list[list[str]]:
    with page.expect_download() as download:
        page.get_by_role("link", name="Download CSV").click()
    return list(csv.reader(io.StringIO(Path(download.value.path()).read_text())))


def test_filters_files_and_receipts_work_without_javascript(console: ConsoleHarness, open_page: OpenPage) -> None:
    console.backends.fill()
    page = open_page("/usage", java_script_enabled=False)
    page.get_by_label("Grouped by").select_option("Key")
    page.get_by_label("Keys", exact=True).select_option(label="Nightly report")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", name="Cost by key")).to_be_visible()
    expect(page.get_by_role("rowheader", name="Nightly report").first).to_be_visible()
    expect(page.get_by_role("rowheader", name="Old laptop")).to_have_count(0)
    assert {row[4] for row in _saved(page)[1:]} == {"Nightly report"}
    page.get_by_role("link", name="Requests", exact=True).click()
    page.get_by_role("link", name="Older requests").click()
    page.get_by_role("region", name="Charged requests").get_by_role("link").last.click()
    expect(page.get_by_text("it agrees with the ledger to the nano-dollar")).to_be_visible()
    page.get_by_role("link", name="Requests", exact=True).first.click()
    page.get_by_label("Request id").fill(request_id(9_001))
    page.get_by_role("button", name="Find").click()
    expect(page.get_by_text("The request was refused before anything was delivered.")).to_be_visible()


def test_an_owner_verifies_the_ledger_and_follows_a_day_to_its_entries(
    console: ConsoleHarness, open_page: OpenPage
) -> None:
    console.backends.fill()
    page = open_page("/credit")
    page.get_by_role("button", name="Verify my ledger").click()
    proof = page.get_by_role("status")
    expect(proof).to_contain_text("Your ledger adds up, to the nano-dollar")
    expect(proof).to_contain_text("All entries together make the balance, $42.187654321.")
    expect(proof).to_be_focused()
    page.get_by_role("region", name="Statement by day").get_by_role("link").first.click()
    expect(page.get_by_role("heading", name="Ledger entries", level=1)).to_be_visible()
    page.get_by_role("region", name="Entries").get_by_role("link").first.click()
    expect(page.get_by_role("heading", name="Receipt", level=1)).to_be_visible()
