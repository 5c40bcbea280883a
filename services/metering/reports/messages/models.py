"""Converts reports across accounts between the .proto's messages and the domain."""

from typing import Final

from legato_protos.metering.v1 import reports_pb2 as pb
from services.chassis.rpc.messages import to_message, to_timestamp
from services.chassis.sentence import Sentence
from services.metering.messages import invalid, to_microseconds
from services.metering.reports.additions import SUMMED, TOLD
from services.metering.reports.models import ROWS_MOST, AccountsReport, ReportQuery, ReportRow
from services.metering.reports.store.model_sums import DayFilter, Sums
from services.rules.usage import COLUMNS, Usage, message_of

# In the order of the columns.
_GROUPS: Final = {
    pb.REPORT_GROUP_DAY: "day_us",
    pb.REPORT_GROUP_ACCOUNT: "account_id",
    pb.REPORT_GROUP_CLASS: "class_id",
    pb.REPORT_GROUP_PROVIDER: "provider",
    pb.REPORT_GROUP_MODEL: "model_name",
}


def to_report_query(request: pb.GetReportRequest) -> ReportQuery:
    if not request.HasField("start_time") or not request.HasField("end_time"):
        raise invalid(Sentence("report_period_missing"), "start_time")
    if any(group not in _GROUPS for group in request.groups):
        raise invalid(Sentence("report_groups"), "groups")
    if not 0 <= request.top_rows <= ROWS_MOST:
        raise invalid(Sentence("report_rows_most", most=ROWS_MOST), "top_rows")
    chosen = DayFilter(
        to_microseconds(request.start_time, "start_time"),
        to_microseconds(request.end_time, "end_time"),
        request.account_id,
        request.class_id,
        request.provider,
        request.model_name,
    )
    groups = tuple(name for group, name in _GROUPS.items() if group in request.groups)
    return ReportQuery(chosen, groups, request.top_rows)


def from_report(report: AccountsReport) -> pb.GetReportResponse:
    return pb.GetReportResponse(
        rows=map(_from_row, report.rows),
        others=_from_sums(report.others),
        other_rows=report.other_rows,
        total=_from_sums(report.total),
        summed_time=to_timestamp(report.summed_us),
        outstanding=to_message(pb.OutstandingCredit, report.outstanding),
    )


def _from_row(row: ReportRow) -> pb.ReportRow:
    return to_message(pb.ReportRow, row, day=to_timestamp(row.day_us), sums=_from_sums(row.sums))


def _from_sums(sums: Sums) -> pb.ReportSums:
    used, told = Usage(*(sums[name] for name in COLUMNS)), Usage(*(sums[name] for name in TOLD.values()))
    others = {name: sums[name] for name in SUMMED if name not in (*COLUMNS, *TOLD.values())}
    return pb.ReportSums(**others, usage=message_of(used), told_usage=message_of(told))
