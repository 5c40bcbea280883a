"""Files that are written while they are read."""

import csv
import http.client
import io
import re
from collections.abc import Sequence
from urllib.parse import urlencode

import pytest

from console.web.csv_files import text_cell
from tests.console.backends import not_answering
from tests.console.harness import ConsoleHarness

ODD_VALUES = (
    "a b",
    "x" * 65,
    "\u00e9",
    "key_1,key_2",
    "../..",
    "mine ",
    "0",
    "2026-13-45",
    "%00",
    "2199-12-31",
    "2020-01-01",
    "",
)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@sum", "\tx", "\rx"])
def test_a_text_that_a_table_would_execute_is_quoted(text: str) -> None:
    assert text_cell(text) == f"'{text}"
    assert text_cell(f"a{text}") == f"a{text}"


@pytest.mark.parametrize("path", ["/usage.csv", "/requests.csv", "/credit.csv"])
def test_a_file_is_one_to_save(console: ConsoleHarness, path: str) -> None:
    console.backends.fill()
    answer = console.get(path, console.auth.sign_in())
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert re.fullmatch(r'attachment; filename="legato-[a-z0-9-]+\.csv"', answer.headers["content-disposition"])
    assert answer.headers["cache-control"] == "no-store"
    rows = list(csv.reader(io.StringIO(answer.text)))
    assert len(rows) > 60
    assert {len(row) for row in rows} == {len(rows[0])}


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/usage.csv", ("keys", "by", "period", "from", "to", "was")),
        ("/requests.csv", ("keys", "class", "from", "to", "page")),
        ("/credit.csv", ("from", "to", "page", "month")),
    ],
)
def test_no_file_breaks_off_on_an_odd_value(console: ConsoleHarness, path: str, names: Sequence[str]) -> None:
    console.backends.fill()
    cookie = console.auth.sign_in()
    queries = [{name: value} for name in names for value in ODD_VALUES]
    queries += [{"period": "custom", "from": "2026-02-02", "to": "2026-01-01"}]
    for query in queries:
        assert console.get(f"{path}?{urlencode(query)}", cookie).status == 200, query


@pytest.mark.parametrize(
    ("path", "call"),
    [
        ("/usage.csv", "MeteringService.ListUsage"),
        ("/requests.csv", "StatementService.ListRequests"),
        ("/credit.csv", "StatementService.ListLedgerEntries"),
        ("/settings/audit-log.csv", "AuditService.ListAuditEvents"),
        ("/security/audit-log.csv", "AuditService.ListAuditEvents"),
        ("/operator/audit-log.csv", "AuditService.ListAuditEvents"),
        ("/operator/reports.csv", "ReportService.GetReport"),
    ],
)
def test_a_file_that_cannot_be_begun_is_a_page_that_says_so(console: ConsoleHarness, path: str, call: str) -> None:
    console.backends.fill()
    console.auth.be_operator()
    console.backends.fail = {call: not_answering()}
    answer = console.get(path, console.auth.sign_in())
    assert (answer.status, answer.headers["content-type"]) == (503, "text/html; charset=utf-8")
    assert "content-disposition" not in answer.headers


def test_a_file_that_cannot_be_finished_is_cut_off_and_not_taken_for_whole(
    console: ConsoleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.pages.account.credit.FILE_PAGE_SIZE", 10)
    console.backends.fill()
    console.backends.answered_first = {"StatementService.ListLedgerEntries": 1}
    console.backends.fail = {"StatementService.ListLedgerEntries": not_answering()}
    with pytest.raises(http.client.HTTPException):
        console.get("/credit.csv", console.auth.sign_in())
    assert '"page.file_cut_off"' in console.log_stream.getvalue()
