"""`legato report`."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import click

from cli.command import CommandGroup, HelpLine, Invocation, shared_options
from cli.commands.ledger.provider_bill import (
    BillColumns,
    BillMistake,
    ComparedRow,
    UsedTokens,
    compare,
    read_bill,
)
from cli.connection import ServiceStubs, call_service
from cli.descriptions import described, money, rfc3339, tokens_of
from cli.output import show_fields, show_json, show_table, stream_csv
from cli.values import Moment, OneOrMoreOf
from legato_protos.metering.v1.reports_pb2 import (
    GetReportRequest,
    GetReportResponse,
    OutstandingCredit,
    ReportGroup,
    ReportRow,
    ReportSums,
)
from services.chassis.money import format_usd
from services.rules.margin import known_cost_nanos, margin_nanos, provider_counts
from services.rules.usage import COLUMNS

DAY = timedelta(days=1)
GROUPS = ("day", "class", "provider", "model", "account")
TABLE = ("requests", *COLUMNS, "revenue_usd", "cost_usd", "margin_usd", "uncosted_usd", "unpaid_usd")
BILL_TABLE = (
    "day", "model", "only_in", "their_input", "our_input", "input_difference", "their_output", "our_output",
    "output_difference", "their_cost_usd", "our_cost_usd", "cost_difference_usd",
)  # fmt: skip

HELP = HelpLine(140, "Show revenue, cost and margin of all accounts.")


@click.group("report", cls=CommandGroup, invoke_without_command=True)
@click.option("--from", "start", type=Moment(), help="First day, in UTC.  [default: the first of this month]")
@click.option("--to", "end", type=Moment(), help="End of the period, exclusive.  [default: tomorrow]")
@click.option("--by", "groups", type=OneOrMoreOf(GROUPS), default=["day"], help="What rows stand for.  [default: day]")
@click.option("--account", "account_id", metavar="ID", default="", help="Only this account.")
@click.option("--class", "class_id", metavar="CLASS", default="", help="Only this class.")
@click.option("--provider", metavar="NAME", default="", help="Only this provider of the routes.")
@click.option("--model", "model_name", metavar="NAME", default="", help="Only this model, as its provider calls it.")
@click.option(
    "--top", "top_rows", type=click.IntRange(1, 100_000), help="Only so many rows, those with the highest revenue."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.pass_context
def report(context: click.Context, /, as_csv: bool, **given: Any) -> None:
    """Show revenue, tokens, cost and margin of all accounts."""
    if context.invoked_subcommand is not None:
        return
    invocation = Invocation(context)
    answer = get_report(invocation.services, **given)
    rows = [describe_row(row) for row in answer.rows]
    labels = [name for name in GROUPS if name in given["groups"]]
    if as_csv:
        stream_csv([*labels, *describe_sums(answer.total)], rows)
    elif invocation.json:
        others = describe_sums(answer.others) | {"rows": answer.other_rows}
        outstanding = describe_outstanding(answer.outstanding)
        summed_to = rfc3339(answer.summed_time) if answer.HasField("summed_time") else None
        totals = {"others": others, "total": describe_sums(answer.total), "summed_to": summed_to}
        show_json({"rows": rows} | totals | {"outstanding": outstanding})
    else:
        _show(answer, rows, labels)


report.params += shared_options()


def get_report(
    services: ServiceStubs,
    start: datetime | None,
    end: datetime | None,
    groups: Sequence[str],
    top_rows: int | None = None,
    **chosen: Any,
) -> GetReportResponse:
    today = datetime.combine(datetime.now(UTC).date(), time(), UTC)
    start, end = _midnight(start or today.replace(day=1)), end or today + DAY
    if end != _midnight(end):
        end = _midnight(end) + DAY
    if start >= end:
        raise click.UsageError("--from must be before --to.")
    request = GetReportRequest(
        groups=[ReportGroup.Value(f"REPORT_GROUP_{name.upper()}") for name in groups], top_rows=top_rows or 0, **chosen
    )
    request.start_time.FromDatetime(start)
    request.end_time.FromDatetime(end)
    return call_service(services.reports.GetReport, request)


def _midnight(moment: datetime) -> datetime:
    return datetime.combine(moment.date(), time(), UTC)


def describe_row(row: ReportRow) -> dict[str, object]:
    day = row.day.ToDatetime().date().isoformat() if row.HasField("day") else None
    labels = described(row, "class", "provider", "model", "account_id")
    account_id = labels.pop("account_id")
    return {"day": day, **labels, "account": account_id, **describe_sums(row.sums)}


def describe_sums(sums: ReportSums) -> dict[str, object]:
    """Describes sums. What is not known of costs and margins is None."""
    return {
        "requests": sums.requests,
        **tokens_of(sums.usage),
        **money(
            revenue=sums.charged_nanos,
            cost=known_cost_nanos(sums),
            margin=margin_nanos(sums),
            # Revenue whose cost is unknown.
            uncosted=sums.charged_nanos - sums.costed_nanos,
            unpaid=sums.lost_nanos,
            granted=sums.granted_nanos,
            adjusted=sums.adjusted_nanos,
            returned=sums.returned_nanos,
        ),
        "calls": sums.calls,
        "uncosted_calls": sums.uncosted_calls,
        **provider_counts(sums),
    }


def describe_outstanding(outstanding: OutstandingCredit) -> dict[str, object]:
    return {
        "live_holds": outstanding.live_holds,
        "overdue_holds": outstanding.overdue_holds,
        "owing_accounts": outstanding.owing_accounts,
        **money(held=outstanding.held_nanos, overdue=outstanding.overdue_nanos, owed=outstanding.owed_nanos),
    }


def _show(answer: GetReportResponse, rows: list[dict[str, object]], labels: list[str]) -> None:
    total = describe_sums(answer.total)
    lines = [[*(row[name] for name in labels), *(row[name] for name in TABLE)] for row in rows]
    for name, sums in (
        *([(f"{answer.other_rows} others", describe_sums(answer.others))] if answer.other_rows else []),
        ("total", total),
    ):
        lines.append([name, *([None] * (len(labels) - 1)), *(sums[column] for column in TABLE)])
    show_table([*(labels or [""]), *(name.removesuffix("_tokens") for name in TABLE)], lines)
    click.echo()
    now = answer.outstanding
    show_fields(
        {
            "granted": f"{total['granted_usd']} USD",
            "adjusted": f"{total['adjusted_usd']} USD",
            "refunds and disputes": f"{total['returned_usd']} USD",
            "held now": f"{format_usd(now.held_nanos)} USD by {now.live_holds} requests",
            "held and overdue": f"{format_usd(now.overdue_nanos)} USD by {now.overdue_holds} requests",
            "owed now": f"{format_usd(now.owed_nanos)} USD by {now.owing_accounts} accounts",
        }
    )
    if answer.HasField("summed_time"):
        click.echo(f"Entries from {rfc3339(answer.summed_time)} on are still being added up.", err=True)


@report.command("bill")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--provider", required=True, metavar="NAME", help="The provider, as the routes call it.")
@click.option("--day-column", metavar="NAME", help="Column of the day or time, in UTC.")
@click.option("--model-column", metavar="NAME", help="Column of the model.")
@click.option("--input-columns", metavar="NAMES", help="Columns of input tokens, added up.")
@click.option("--output-columns", metavar="NAMES", help="Columns of output tokens, added up.")
@click.option("--cost-columns", metavar="NAMES", help="Columns of the cost in dollars, added up.")
@click.option(
    "--model", "renamed", metavar="THEIRS=OURS", multiple=True, help="A model that the bill calls another name."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
def report_bill(
    invocation: Invocation, file: Path, provider: str, renamed: tuple[str, ...], as_csv: bool, **columns: str | None
) -> None:
    """Compare a provider's bill, a CSV file, with what was counted here: by day and model, the largest difference
    first."""
    names = dict(_pair(each) for each in renamed)
    given = {name.partition("_")[0]: _names(text) for name, text in columns.items() if text is not None}
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            bill = read_bill(lines, BillColumns(**given), names)
    except (BillMistake, UnicodeDecodeError) as mistake:
        raise click.UsageError(f"{file}: {mistake}") from None
    days = [day for day, _ in bill]
    midnights = [datetime.combine(day, time(), UTC) for day in (min(days), max(days))]
    answer = get_report(invocation.services, midnights[0], midnights[1] + DAY, ("day", "model"), provider=provider)
    rows = [_describe_compared(row) for row in compare(bill, dict(_used(answer)))]
    if as_csv:
        stream_csv(list(rows[0]), rows)
    elif invocation.json:
        show_json(rows)
    else:
        show_table(BILL_TABLE, [[row[name] for name in BILL_TABLE] for row in rows])


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def _pair(text: str) -> tuple[str, str]:
    theirs, separator, ours = text.partition("=")
    if not separator or not theirs or not ours:
        raise click.UsageError("--model is THEIRS=OURS.")
    return theirs, ours


def _used(answer: GetReportResponse) -> Iterator[tuple[tuple[date, str], UsedTokens]]:
    for row in answer.rows:
        sums = row.sums
        cost_nanos = None if sums.uncosted_calls else sums.cost_nanos
        used = UsedTokens(sums.told_usage.prompt_tokens, sums.told_usage.completion_tokens, cost_nanos)
        yield (row.day.ToDatetime().date(), row.model_name), used


def _describe_compared(row: ComparedRow) -> dict[str, object]:
    return {
        "day": row.day.isoformat(),
        "model": row.model_name,
        "only_in": row.only_in,
        "their_input": row.theirs.input_tokens,
        "our_input": row.ours.input_tokens,
        "input_difference": row.input_difference,
        "their_output": row.theirs.output_tokens,
        "our_output": row.ours.output_tokens,
        "output_difference": row.output_difference,
        **money(
            their_cost=row.theirs.cost_nanos, our_cost=row.ours.cost_nanos, cost_difference=row.cost_difference_nanos
        ),
    }
