"""`legato usage`."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, time, timedelta
from itertools import chain
from typing import Any

import click

from cli.command import HelpLine, Invocation, command
from cli.commands.account.accounts import get_account
from cli.connection import CallRefused, ServiceStubs, call_service
from cli.descriptions import described, tokens_of
from cli.output import show_table, stream_csv, stream_json
from cli.values import Moment, OneOrMoreOf
from legato_protos.auth.v1.auth_pb2 import ListCallerKeysRequest
from legato_protos.metering.v1.metering_pb2 import ListUsageRequest, UsageBucket, UsageRow
from services.chassis.errors import Reason
from services.chassis.money import format_usd
from services.rules.usage import COLUMNS

HOUR = timedelta(hours=1)
BUCKETS = {"hour": UsageBucket.USAGE_BUCKET_HOUR, "day": UsageBucket.USAGE_BUCKET_DAY}
# What rows add up; in a table, tokens are only named by their kind.
SUMS = ("requests", *COLUMNS, "cost_nanos")

HELP = HelpLine(130, "Show an account's usage.")


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
    type=OneOrMoreOf(("key", "class", "caller")),
    multiple=True,
    help="Separate rows for each key, class, or internal program that called; repeat for several.",
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
    answers = list_usage(invocation.services, account_id, start, end, by, names)
    rows = chain.from_iterable(describe_all(invocation.services, account_id, answer, names) for answer in answers)
    labels = ["start", "class", "key_id", *(["caller"] if "caller" in names else [])]
    if as_csv:
        columns = [*labels, *SUMS[:-1], "cost_usd", "cost_nanos"]
        stream_csv(columns, (row | {"cost_usd": format_usd(row["cost_nanos"])} for row in rows))
    elif invocation.json:
        stream_json(rows)
    else:
        headers = [*labels, *(name.removesuffix("_tokens") for name in SUMS[:-1]), "cached_share", "cost_usd"]
        show_table(
            headers, [[*list(row.values())[:-1], cached_share(row), format_usd(row["cost_nanos"])] for row in rows]
        )


def list_usage(
    services: ServiceStubs, account_id: str, start: datetime, end: datetime, by: str, group: list[str]
) -> Iterator[Sequence[UsageRow]]:
    """Lists the rows of any period: one that is too long for an answer is asked for in halves."""
    request = ListUsageRequest(
        account_id=account_id,
        bucket=BUCKETS[by],
        # Metering knows callers by their keys.
        group_by_key="key" in group or "caller" in group,
        group_by_class="class" in group,
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
        yield rows
        return
    yield from list_usage(services, account_id, start, middle, by, group)
    yield from list_usage(services, account_id, middle, end, by, group)


def describe_all(
    services: ServiceStubs, account_id: str, rows: Sequence[UsageRow], group: list[str]
) -> Iterable[dict[str, Any]]:
    """Describes rows. Grouped by caller, those of one caller are added up, and requests with a key have none."""
    if "caller" not in group:
        return map(describe, rows)
    # Asked after metering, so the caller of each row is known.
    listed = call_service(services.auth.ListCallerKeys, ListCallerKeysRequest(account_id=account_id))
    caller_by_key_id = {key.key_id: key.caller for key in listed.keys}
    sums: dict[Any, dict[str, Any]] = {}
    for row in map(describe, rows):
        labels = {name: row[name] for name in ("start", "class", "key_id")}
        labels["caller"] = caller_by_key_id.get(row["key_id"])
        if "key" not in group:
            labels["key_id"] = None
        added = sums.setdefault(tuple(labels.values()), labels | dict.fromkeys(SUMS, 0))
        added |= {name: added[name] + row[name] for name in SUMS}
    return sums.values()


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


def cached_share(row: dict[str, Any]) -> str | None:
    """Returns how much of the prompts was read from providers' caches."""
    return f"{row['cached_tokens'] / row['prompt_tokens']:.1%}" if row["prompt_tokens"] else None


def describe(row: UsageRow) -> dict[str, Any]:
    shown = described(row, "start", "class", "key_id", "requests")
    return {**shown, **tokens_of(row.usage), "cost_nanos": row.cost_nanos}
