"""Revenue, tokens, cost and margin of all accounts, by day, class, provider, model or account, and a file of it."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from console.display.language import N_, _
from console.display.words import column_places, short_day
from console.services import LONG_READ_TIMEOUT_S, if_available
from console.web.csv_files import Row, csv_response, text_cell
from console.web.periods import CHOICES, Period, period_in, stamp_of
from console.web.visit import Visit, with_query
from console.web.zones import UTC_ZONE
from legato_protos.auth.v1 import auth_pb2
from legato_protos.metering.v1 import reports_pb2 as pb
from services.chassis.money import format_usd
from services.rules.margin import known_cost_nanos, margin_nanos, provider_counts
from services.rules.usage import named

GROUPINGS: Final = {
    "day": (N_("By day"), N_("Day"), [pb.REPORT_GROUP_DAY]),
    "class": (N_("By class"), N_("Class"), [pb.REPORT_GROUP_CLASS]),
    "provider": (N_("By provider"), N_("Provider"), [pb.REPORT_GROUP_PROVIDER]),
    "model": (N_("By model"), N_("Model"), [pb.REPORT_GROUP_PROVIDER, pb.REPORT_GROUP_MODEL]),
    "account": (N_("By account"), N_("Account"), [pb.REPORT_GROUP_ACCOUNT]),
}
# More would be no table to read: the file has all.
ROWS_MOST: Final = 100
# A call lists no more.
ACCOUNTS_NAMED: Final = 1_000


async def show(visit: Visit) -> Response:
    period, by = _choice_in(visit)
    request = _request(period, by, ROWS_MOST)
    report = if_available(visit.metering.reports.GetReport(request, timeout=LONG_READ_TIMEOUT_S))
    if by == "account":
        found, names = await asyncio.gather(report, _account_names(visit))
    else:
        found, names = await report, {}
    return visit.render(
        "operator_reports.html",
        period=period,
        periods=CHOICES,
        by=by,
        groupings={name: _(words) for name, (words, _column, _groups) in GROUPINGS.items()},
        column=_(GROUPINGS[by][1]),
        found=found,
        rows=[] if found is None else margin_rows(found.rows, by, names),
        places=2 if found is None else places_of(found),
        cost_of=known_cost_nanos,
        margin_of=margin_nanos,
        file_path=with_query("/operator/reports.csv", {**period.query, "by": by}),
    )


async def download(visit: Visit) -> Response:
    period, by = _choice_in(visit)
    name = f"legato-report-{period.first}-{period.last}.csv"
    return await csv_response(visit, name, _file_row(pb.ReportRow()), _file_rows(visit, _request(period, by)))


class MarginRow(NamedTuple):
    """A row of a table of margins: what it stands for, and where that leads."""

    title: str
    sums: pb.ReportSums
    path: str = ""
    # The provider of a model, or the id of an account that is named.
    details: str = ""


def margin_rows(rows: Iterable[pb.ReportRow], by: str, account_names: Mapping[str, str]) -> list[MarginRow]:
    return [_margin_row(row, by, account_names.get(row.account_id, "")) for row in rows]


def _margin_row(row: pb.ReportRow, by: str, account_name: str) -> MarginRow:
    if by == "account" and row.account_id:
        path = f"/operator/accounts/{row.account_id}"
        return MarginRow(account_name or row.account_id, row.sums, path, row.account_id if account_name else "")
    return MarginRow(_title(row, by), row.sums, "", row.provider if by == "model" else "")


async def _account_names(visit: Visit) -> dict[str, str]:
    """Returns the names of accounts by id, as many as one call lists; none if auth does not answer."""
    request = auth_pb2.ListAccountsRequest(page_size=ACCOUNTS_NAMED)
    listed = await visit.optional(visit.auth.accounts.ListAccounts(request), "accounts")
    return {} if listed is None else {account.account_id: account.name for account in listed.accounts}


def places_of(found: pb.GetReportResponse) -> int:
    """Returns the places of all amounts in a table of margins."""
    every = [*(row.sums for row in found.rows), found.others, found.total]
    return column_places(nanos for sums in every for nanos in (sums.charged_nanos, known_cost_nanos(sums)))


def _choice_in(visit: Visit) -> tuple[Period, str]:
    """Reads the period, in days of UTC as providers' bills have them, and the grouping."""
    by = visit.query.get("by", "day")
    return period_in(visit.query, UTC_ZONE, visit.now), by if by in GROUPINGS else "day"


def _request(period: Period, by: str, top_rows: int = 0) -> pb.GetReportRequest:
    return pb.GetReportRequest(
        start_time=stamp_of(period.start), end_time=stamp_of(period.end), groups=GROUPINGS[by][2], top_rows=top_rows
    )


def _title(row: pb.ReportRow, by: str) -> str:
    if by == "day":
        return short_day(row.day.ToDatetime().date(), year=True)
    named = {"class": row.class_id, "provider": row.provider, "model": row.model_name, "account": row.account_id}[by]
    # Entries without a class are grants and adjustments.
    return named or (_("No class") if by == "class" else _("Unknown"))


async def _file_rows(visit: Visit, request: pb.GetReportRequest) -> AsyncIterator[Row]:
    found = await visit.metering.reports.GetReport(request, timeout=LONG_READ_TIMEOUT_S)
    for row in found.rows:
        yield _file_row(row)


def _file_row(row: pb.ReportRow) -> Row:
    sums = row.sums
    cost_nanos, left_nanos = known_cost_nanos(sums), margin_nanos(sums)
    money: dict[str, Any] = {
        "revenue_usd": sums.charged_nanos,
        "cost_usd": cost_nanos,
        "margin_usd": left_nanos,
        "uncosted_usd": sums.charged_nanos - sums.costed_nanos,
        "unpaid_usd": sums.lost_nanos,
        "granted_usd": sums.granted_nanos,
        "adjusted_usd": sums.adjusted_nanos,
        "returned_usd": sums.returned_nanos,
    }
    return {
        "day": row.day.ToDatetime().date().isoformat() if row.HasField("day") else "",
        "class": row.class_id,
        "provider": text_cell(row.provider),
        "model": text_cell(row.model_name),
        "account": row.account_id,
        "requests": sums.requests,
        **named(sums.usage),
        "calls": sums.calls,
        "uncosted_calls": sums.uncosted_calls,
        **provider_counts(sums),
        # Unknown is empty.
        **{name: "" if nanos is None else format_usd(nanos) for name, nanos in money.items()},
    }
