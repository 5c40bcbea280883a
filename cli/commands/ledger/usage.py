"""`legato usage`."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any

import click

from cli.command import Invocation, command
from cli.commands.account.accounts import get_account
from cli.connection import CallRefused, ServiceStubs, call_service
from cli.descriptions import described, tokens_of
from cli.output import show_table, stream_csv, stream_json
from cli.values import Moment, OneOrMoreOf
from legato_protos.metering.v1.metering_pb2 import ListUsageRequest, UsageBucket, UsageRow
from services.chassis.errors import Reason
from services.chassis.money import format_usd

HOUR = timedelta(hours=1)
BUCKETS = {"hour": UsageBucket.USAGE_BUCKET_HOUR, "day": UsageBucket.USAGE_BUCKET_DAY}
CSV_COLUMNS = [
    "start", "class", "key_id", "requests", "prompt_tokens", "cached_tokens", "completion_tokens", "cost_usd",
    "cost_nanos",
]  # fmt: skip
HEADERS = ["start", "class", "key_id", "requests", "prompt", "cached", "completion", "cost_usd"]


@command()
@click.option("--account", "account_id", metavar="ID", required=True, help="The account.")
@click.option(
    "--from", "start", type=Moment(), help="Start of the period.  [default: 24 hours ago, or 30 days with --by day]"
)
@click.option("--to", "end", type=Moment(), help="End of the period, exclusive.  [default: now]")
@click.option(
    "--by", type=click.Choice(list(BUCKETS)), default="hour", show_default=True, help="The period of each row."
)
@click.option(
    "--group",
    "groups",
    type=OneOrMoreOf(("key", "class")),
    multiple=True,
    help="Separate rows for each key or class; repeat for both.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
def usage(
    invocation: Invocation,
    account_id: str,
    start: datetime | None,
    end: datetime | None,
    by: str,
    groups: Sequence[list[str]],
    as_csv: bool,
) -> None:
    """Show an account's usage, oldest first."""
    end = end or datetime.now(UTC)
    start, end = round_down(start or default_start(end, by)), round_up(end)
    if start >= end:
        raise click.UsageError("--from must be before --to.")
    get_account(invocation.services, account_id)
    names = [name for some in groups for name in some]
    rows = (describe(row) for row in list_usage(invocation.services, account_id, start, end, by, names))
    if as_csv:
        stream_csv(CSV_COLUMNS, (row | {"cost_usd": format_usd(row["cost_nanos"])} for row in rows))
    elif invocation.json:
        stream_json(rows)
    else:
        show_table(HEADERS, [[*list(row.values())[:-1], format_usd(row["cost_nanos"])] for row in rows])


def list_usage(
    services: ServiceStubs, account_id: str, start: datetime, end: datetime, by: str, group: list[str]
) -> Iterator[UsageRow]:
    """Lists the rows of any period: one that is too long for an answer is asked for in halves."""
    request = ListUsageRequest(
        account_id=account_id, bucket=BUCKETS[by], group_by_key="key" in group, group_by_class="class" in group
    )
    request.start_time.FromDatetime(start)
    request.end_time.FromDatetime(end)
    try:
        rows = call_service(services.metering.ListUsage, request).rows
    except CallRefused as refusal:
        middle = middle_of(start, end, by)
        if refusal.reason is not Reason.REQUEST_INVALID or refusal.param != "start_time" or not start < middle < end:
            raise
    else:
        yield from rows
        return
    yield from list_usage(services, account_id, start, middle, by, group)
    yield from list_usage(services, account_id, middle, end, by, group)


def middle_of(start: datetime, end: datetime, by: str) -> datetime:
    """Returns the limit between two rows' periods that is nearest to the middle, before it."""
    middle = round_down(start + (end - start) / 2)
    return middle if by == "hour" else middle.replace(hour=0)


def default_start(end: datetime, by: str) -> datetime:
    if by == "hour":
        return end - timedelta(hours=24)
    return datetime.combine((end - timedelta(days=30)).date(), time(), UTC)


def round_down(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


def round_up(moment: datetime) -> datetime:
    hour = round_down(moment)
    return hour if hour == moment else hour + HOUR


def describe(row: UsageRow) -> dict[str, Any]:
    shown = described(row, "start", "class", "key_id", "requests")
    return {**shown, **tokens_of(row.usage), "cost_nanos": row.cost_nanos}
