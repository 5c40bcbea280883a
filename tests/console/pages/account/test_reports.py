"""Usage, requests and credit: what the pages ask for, what they say in other states, and their files."""

import csv
import http.client
import io
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from console.display.charts import cost_chart
from console.display.receipts import arithmetic_of, end_of
from console.web.csv_files import text_cell
from console.web.periods import Period, period_in
from console.web.zones import UTC_ZONE, find_zone
from protos.metering.v1 import metering_pb2
from protos.metering.v1.statements_pb2 import ListRequestsRequest, RequestReceipt
from protos.type.v1 import access_token_pb2
from protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason
from services.metering.wire.reports import to_usage_query
from services.metering.wire.statements import to_entries_query, to_requests_query
from tests.console.fakes.services import not_answering
from tests.console.fakes.statements import request_id
from tests.console.harness import COOKIE, ConsoleHarness

NOW = datetime(2026, 11, 17, 3, 30, tzinfo=UTC)
TORONTO = find_zone("America/Toronto", NOW)


# Zones and periods.


def test_a_day_is_the_reader_s() -> None:
    assert (TORONTO.name, TORONTO.today(NOW)) == ("America/Toronto", date(2026, 11, 16))
    assert TORONTO.midnight(date(2026, 11, 16)) == datetime(2026, 11, 16, 5, tzinfo=UTC)
    assert UTC_ZONE.today(NOW) == date(2026, 11, 17)


@pytest.mark.parametrize("name", ["", "UTC", "Mars/Olympus", "../../etc/passwd", "America", "a" * 500, "<b>"])
def test_an_unknown_zone_is_utc(name: str) -> None:
    assert find_zone(name, NOW) is UTC_ZONE


@pytest.mark.parametrize("name", ["America/St_Johns", "Asia/Kolkata", "Australia/Lord_Howe"])
def test_days_of_a_zone_of_half_hours_are_utc_and_the_page_says_so(name: str) -> None:
    zone = find_zone(name, NOW)
    assert (zone.name, zone.info) == ("", UTC)
    assert name in zone.words


@pytest.mark.parametrize(
    ("query", "first", "last", "unit"),
    [
        ("", "2026-10-18", "2026-11-16", "day"),
        ("period=today", "2026-11-16", "2026-11-16", "hour"),
        ("period=7", "2026-11-10", "2026-11-16", "day"),
        ("period=month", "2026-11-01", "2026-11-16", "day"),
        ("period=last-month", "2026-10-01", "2026-10-31", "day"),
        ("period=custom&from=2026-01-01&to=2026-10-31", "2026-01-01", "2026-10-31", "month"),
        ("period=custom&from=2026-01-01&to=2190-10-31", "2026-01-01", "2026-11-16", "month"),
        ("period=nonsense", "2026-10-18", "2026-11-16", "day"),
        # The dates were changed, and the choice was not.
        ("period=30&was=30&from=2026-11-01&to=2026-11-05", "2026-11-01", "2026-11-05", "day"),
        # The choice was changed, and the dates are what they were.
        ("period=7&was=30&from=2026-10-18&to=2026-11-16", "2026-11-10", "2026-11-16", "day"),
    ],
)
def test_a_period_is_read_from_the_address(query: str, first: str, last: str, unit: str) -> None:
    period = period_in(dict(part.split("=") for part in query.split("&") if part), TORONTO, NOW)
    assert (period.first.isoformat(), period.last.isoformat(), period.unit, period.problem) == (first, last, unit, "")
    assert period_in(period.query, TORONTO, NOW) == period


@pytest.mark.parametrize("query", ["from=2026-02-30&to=2026-03-01", "from=2026-03-02&to=2026-03-01", "to=0001-01-01"])
def test_dates_that_make_no_period_are_said_to_be_wrong(query: str) -> None:
    period = period_in({"period": "custom", **dict(part.split("=") for part in query.split("&"))}, TORONTO, NOW)
    assert period.problem
    assert period.choice == "30"


def test_a_day_on_which_the_clock_changes_has_all_its_hours() -> None:
    autumn = Period("custom", date(2026, 11, 1), date(2026, 11, 1), TORONTO)
    assert len(autumn.columns) == 25
    spring = Period("custom", date(2026, 3, 8), date(2026, 3, 8), TORONTO)
    assert len(spring.columns) == 23


# Charts.


def test_a_name_in_a_chart_is_text_whatever_it_looks_like() -> None:
    days = [date(2026, 11, 1), date(2026, 11, 2)]
    svg = cost_chart(days, {"</title><script>": {days[0]: 5}}).svg
    assert "&lt;/title&gt;&lt;script&gt;" in svg
    assert "<script" not in svg


# Receipts.


def test_a_cost_is_rounded_up_once() -> None:
    usage = Usage(prompt_tokens=3, cached_tokens=1, completion_tokens=1)
    price = metering_pb2.Price(
        input_nanos_per_million=400_000, cached_input_nanos_per_million=100_000, output_nanos_per_million=100_001
    )
    receipt = RequestReceipt(usage=usage, price=price, cost_nanos=2)
    arithmetic = arithmetic_of(receipt)
    assert arithmetic is not None
    assert (arithmetic.product, arithmetic.nanos, arithmetic.agrees) == (1_000_001, 2, True)
    receipt.cost_nanos = 3
    assert not (arithmetic_of(receipt) or arithmetic).agrees


def test_every_end_has_words() -> None:
    for end in metering_pb2.End.values():
        for state in metering_pb2.RequestState.values():
            assert all(text for text in end_of(RequestReceipt(end=end, state=state))[::2])


def test_a_receipt_that_does_not_agree_says_so(console: ConsoleHarness) -> None:
    console.fakes.fill()
    console.fakes.receipts[request_id(7)].cost_nanos += 1
    text = console.get(f"/requests/{request_id(7)}", console.fakes.sign_in()).text
    assert "Please tell the operator" in text
    assert "agrees with the ledger" not in text


def test_a_request_is_found_by_the_ids_that_clients_have(console: ConsoleHarness) -> None:
    session = console.fakes.sign_in()
    for given in (request_id(7), f"chatcmpl-{request_id(7)}", f" {request_id(7).upper()} "):
        answer = console.get(f"/requests?id={quote(given)}", session)
        assert answer.headers["location"] == f"/requests/{request_id(7)}"
    assert console.get("/requests?id=nonsense", session).status == 404
    unknown = console.get(f"/requests/{request_id(7)}", session)
    assert unknown.status == 404
    assert "No such request" in unknown.text


# Pages in other states.


def test_members_see_their_own_keys_first_and_all_if_they_ask(console: ConsoleHarness) -> None:
    console.fakes.role = access_token_pb2.ACCOUNT_ROLE_MEMBER
    console.fakes.fill()
    session = console.fakes.sign_in()
    own = console.get("/usage?by=key", session).text
    body = own[own.index("Usage by key") :]
    assert "Nightly report" in body
    assert "Website chat" not in body
    assert "Website chat" in (console.get("/usage?by=key&keys=all", session).text[own.index("Usage by key") :])
    console.get("/requests", session)
    asked = [request for request in console.fakes.requests if isinstance(request, ListRequestsRequest)]
    assert list(asked[-1].key_ids) == [each.key.key_id for each in console.fakes.keys if each.created_by == "user_1"]
    console.get("/requests?keys=all", session)
    asked = [request for request in console.fakes.requests if isinstance(request, ListRequestsRequest)]
    assert list(asked[-1].key_ids) == []


def test_viewers_see_everything_and_may_verify(console: ConsoleHarness) -> None:
    console.fakes.role = access_token_pb2.ACCOUNT_ROLE_VIEWER
    console.fakes.fill()
    session = console.fakes.sign_in()
    for path in ("/usage", "/requests", "/credit", "/credit/entries", f"/requests/{request_id(3)}"):
        assert console.get(path, session).status == 200
    assert "Keys that you created" not in console.get("/usage", session).text
    assert "Your ledger adds up" in console.post("/credit/verify", session=session).text


def test_revoked_keys_stay_in_reports_by_their_names(console: ConsoleHarness) -> None:
    console.fakes.fill()
    session = console.fakes.sign_in()
    for path in ("/requests", "/credit/entries"):
        assert "Contractor" in console.get(path, session).text
    assert "Contractor · Revoked" in console.get("/usage", session).text


def test_reports_have_ids_while_nobody_knows_the_names(console: ConsoleHarness) -> None:
    console.fakes.fill()
    console.fakes.fail = {"AccountService.ListKeys": not_answering()}
    text = console.get("/usage?by=key", console.fakes.sign_in()).text
    assert "keys have no names" in text
    assert "key_0000000000000001" in text


@pytest.mark.parametrize("path", ["/usage", "/requests", "/credit"])
def test_a_page_without_metering_says_so(console: ConsoleHarness, path: str) -> None:
    console.fakes.fill()
    names = ("MeteringService.ListUsage", "MeteringService.GetBalance", "StatementService.ListLedgerDays")
    console.fakes.fail = {name: not_answering() for name in (*names, "StatementService.ListRequests")}
    answer = console.get(path, console.fakes.sign_in())
    assert answer.status == 200
    assert "Metering is not answering" in answer.text


def test_figures_that_do_not_add_up_are_shown(console: ConsoleHarness) -> None:
    console.fakes.fill()
    console.fakes.violations = ["account acct_1: balance is +1 nanos off the sum of its ledger"]
    text = console.post("/credit/verify", session=console.fakes.sign_in()).text
    assert "One figure does not add up" in text
    assert "+1 nanos off" in text
    assert "Your ledger adds up" not in text


def test_a_verification_that_takes_long_is_asked_for_again(console: ConsoleHarness) -> None:
    console.fakes.fill()
    console.fakes.audits_that_run = 1
    session = console.fakes.sign_in()
    waiting = console.post("/credit/verify", session=session).text
    assert "runs since 12 s" in waiting
    assert 'action="/credit/verify" data-repeats' in waiting
    assert "Your ledger adds up" not in waiting
    assert "Your ledger adds up" in console.post("/credit/verify", session=session).text


def test_the_zone_of_the_reader_reaches_metering(console: ConsoleHarness) -> None:
    console.fakes.fill()
    session = console.fakes.sign_in()
    cookie = {"Cookie": f"{COOKIE}={session}; legato-zone=America/Toronto"}
    assert "Days are those of America/Toronto" in console.get("/usage", headers=cookie).text
    zones = {request.time_zone for request in console.fakes.requests if hasattr(request, "time_zone")}
    assert zones == {"America/Toronto"}
    assert "Days are UTC." in console.get("/usage", session).text


# Files.


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@sum", "\tx", "\rx"])
def test_a_text_that_a_table_would_execute_is_quoted(text: str) -> None:
    assert text_cell(text) == f"'{text}"
    assert text_cell(f"a{text}") == f"a{text}"


@pytest.mark.parametrize("path", ["/usage.csv", "/requests.csv", "/credit.csv"])
def test_a_file_is_one_to_save(console: ConsoleHarness, path: str) -> None:
    console.fakes.fill()
    answer = console.get(path, console.fakes.sign_in())
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert re.fullmatch(r'attachment; filename="legato-[a-z0-9-]+\.csv"', answer.headers["content-disposition"])
    assert answer.headers["cache-control"] == "no-store"
    rows = list(csv.reader(io.StringIO(answer.text)))
    assert len(rows) > 60
    assert {len(row) for row in rows} == {len(rows[0])}


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


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/usage.csv", ("keys", "by", "period", "from", "to", "was")),
        ("/requests.csv", ("keys", "class", "from", "to", "page")),
        ("/credit.csv", ("from", "to", "page", "month")),
    ],
)
def test_no_file_breaks_off_on_an_odd_value(
    console: ConsoleHarness, path: str, names: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    console.fakes.fill()
    # What metering would refuse, it refuses here.
    for method, check in (
        ("ListUsage", to_usage_query),
        ("ListRequests", to_requests_query),
        ("ListLedgerEntries", to_entries_query),
    ):
        monkeypatch.setattr(console.fakes, method, _checking(check, getattr(console.fakes, method)), raising=False)
    cookie = console.fakes.sign_in()
    queries = [{name: value} for name in names for value in ODD_VALUES]
    queries += [{"period": "custom", "from": "2026-02-02", "to": "2026-01-01"}]
    for query in queries:
        assert console.get(f"{path}?{urlencode(query)}", cookie).status == 200, query


def _checking(check: Callable[[Any], Any], answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def checked(request: Any) -> Any:
        first_page = type(request)()
        first_page.CopyFrom(request)
        if hasattr(request, "page_token"):
            first_page.ClearField("page_token")
        check(first_page)
        return answer(request)

    return checked


def test_a_file_that_cannot_be_finished_is_cut_off_and_not_taken_for_whole(console: ConsoleHarness) -> None:
    console.fakes.fill()
    console.fakes.fail = {"StatementService.ListLedgerEntries": not_answering()}
    with pytest.raises(http.client.HTTPException):
        console.get("/credit.csv", console.fakes.sign_in())
    assert '"page.file_cut_off"' in console.log_stream.getvalue()


def test_a_period_with_too_many_rows_is_read_in_parts(console: ConsoleHarness) -> None:
    console.fakes.fill()
    too_long = LegatoError(Reason.REQUEST_INVALID, "The period is too long: choose a shorter one.", param="start_time")
    usual = console.fakes.ListUsage
    spans = []

    def refuse_long(request: metering_pb2.ListUsageRequest) -> metering_pb2.ListUsageResponse:
        spans.append((request.end_time.seconds - request.start_time.seconds) // 86_400)
        if spans[-1] > 10:
            raise too_long
        answer = metering_pb2.ListUsageResponse()
        answer.CopyFrom(usual(request))
        return answer

    console.fakes.ListUsage = refuse_long  # type: ignore[method-assign]
    try:
        answer = console.get("/usage.csv?period=30", console.fakes.sign_in())
    finally:
        del console.fakes.ListUsage
    assert answer.status == 200
    assert spans[0] > 10
    assert sum(span for span in spans if span <= 10) == 30
