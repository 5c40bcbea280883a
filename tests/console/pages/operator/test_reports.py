"""Revenue, cost and margin of all accounts."""

import csv
import io
import re
from decimal import Decimal

import pytest

from tests.console.backends import not_answering
from tests.console.harness import COOKIE, ConsoleHarness


@pytest.fixture
def session(console: ConsoleHarness) -> str:
    """The session of an operator, of a service whose only account has a month of use."""
    console.auth.be_operator()
    console.backends.fill()
    return console.auth.sign_in()


def test_report_shows_revenue_cost_and_margin_and_says_what_is_unknown(console: ConsoleHarness, session: str) -> None:
    before = "/operator/reports?period=custom&from=2020-01-01&to=2020-01-02"
    assert "Nothing was recorded in this period" in console.get(before, session).text
    for by, words in (
        ("day", ("Total", "unknown")),
        ("class", ("fortissimo", "forte", "mezzo", "No class")),
        ("provider", ("maple", "Unknown")),
        ("model", ("maple-large", "maple-small", "Unknown")),
        (
            "account",
            ('href="/operator/accounts/acct_0123456789abcdef">Analytical Engines</a>', ">acct_0123456789abcdef<"),
        ),
        ("moon", ("By day",)),
    ):
        text = console.get(f"/operator/reports?period=30&by={by}", session).text
        for word in words:
            assert word in text, (by, word)
    assert "· 1 request<" in console.get("/operator/reports", session).text


def test_the_choices_of_a_report_are_in_the_language_of_the_visit(console: ConsoleHarness, session: str) -> None:
    text = console.get("/operator/reports", session, {"Accept-Language": "fr-CA"}).text
    assert "30\N{NO-BREAK SPACE}derniers jours</option>" in text
    assert "Last 30 days" not in text


def test_periods_are_offered_in_the_language_of_the_visit(console: ConsoleHarness, session: str) -> None:
    cookie = {"Cookie": f"{COOKIE}={session}; legato-language=fr"}
    text = console.get("/operator/reports", headers=cookie).text
    assert "Last 7 days" not in text
    assert "7\u00a0derniers jours" in text


def test_file_adds_up_to_what_was_charged_and_leaves_the_unknown_empty(console: ConsoleHarness, session: str) -> None:
    text = console.get("/operator/reports.csv?period=90&by=model", session).text
    rows = {row["model"]: row for row in csv.DictReader(io.StringIO(text))}
    revenue = sum(Decimal(row["revenue_usd"]) for row in rows.values())
    assert revenue * 10**9 == console.backends.metering.charged_nanos()
    assert (rows["maple-small"]["cost_usd"], rows["maple-small"]["margin_usd"], rows[""]["cost_usd"]) == ("", "", "")
    large = rows["maple-large"]
    assert Decimal(large["margin_usd"]) == Decimal(large["revenue_usd"]) - Decimal(large["cost_usd"]) > 0


def test_page_of_an_account_tells_the_same_margins_as_the_report(console: ConsoleHarness, session: str) -> None:
    def rows(path: str) -> str:
        found = re.search(r"<tbody>(.*Total.*?</tr>)</tfoot>", console.get(path, session).text, re.DOTALL)
        assert found, path
        return found[1]

    # It is the only account that was used.
    of_account = rows("/operator/accounts/acct_0123456789abcdef")
    assert "fortissimo" in of_account
    # Grants, which have no class, are no usage.
    of_all = rows("/operator/reports?by=class")
    assert of_account == re.sub(r"<tr>\s*<th scope=\"row\">No class<.*?</tr>", "", of_all, flags=re.DOTALL)
    # One format in a column: as many places in each row.
    amounts = re.findall(r"\$[\d,]+\.(\d+)<", of_account)
    assert len({len(places) for places in amounts}) == 1
    request = next(each for each in console.backends.requests if type(each).__name__ == "GetReportRequest")
    assert request.account_id == "acct_0123456789abcdef"


def test_page_says_that_metering_does_not_answer(console: ConsoleHarness, session: str) -> None:
    console.backends.fail = {"ReportService.GetReport": not_answering()}
    assert "The report cannot be shown right now." in console.get("/operator/reports", session).text
